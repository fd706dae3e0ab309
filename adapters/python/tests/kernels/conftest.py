"""Skipped adapters are named at the end of a run, so that none goes unnoticed."""


def pytest_terminal_summary(terminalreporter):
    reasons = {report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()) if isinstance(report.longrepr, tuple)}
    for reason in sorted(reasons):
        terminalreporter.write_line(f"NOT TESTED: {reason.removeprefix('Skipped: ')}", red=True, bold=True)
