"""What cannot be tested here is named at the end of a run, so that none goes unnoticed."""

import importlib.util

NEEDED = [name for name in ("numpy", "ml_dtypes") if importlib.util.find_spec(name) is None]
collect_ignore = ["test_kernels.py"] if NEEDED else []


def pytest_terminal_summary(terminalreporter):
    reasons = {report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()) if isinstance(report.longrepr, tuple)}
    missing = {f"any adapter of kernels/: there is no {name}" for name in NEEDED}
    for reason in sorted(missing | {reason.removeprefix("Skipped: ") for reason in reasons}):
        terminalreporter.write_line(f"NOT TESTED: {reason}", red=True, bold=True)
