"""Files of a run, without times."""

import json
from pathlib import Path
from typing import Any

_TIMES = ("seconds", "cases_per_second")


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(part) for name, part in value.items() if name not in _TIMES}
    return [_without_times(part) for part in value] if isinstance(value, list) else value


def files(path: Path) -> dict[str, str]:
    """Of a file or a folder: text by name, the times of JSON files taken out."""
    found = {}
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            text = file.read_text()
            found[str(file.relative_to(path))] = json.dumps(_without_times(json.loads(text))) if file.suffix == ".json" else text
    return found
