"""The wheel holds the whole package, and versions agree."""

import doctest
import re
from pathlib import Path

import lastbit
from lastbit import capabilities, formats

ROOT = Path(__file__).resolve().parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text()


def test_every_package_is_in_the_wheel():
    named = re.search(r"^packages = \[(.*)\]$", PROJECT, re.M).group(1)
    found = {str(path.parent.relative_to(ROOT)).replace("/", ".") for path in (ROOT / "lastbit").rglob("__init__.py")}
    assert set(re.findall(r'"([^"]+)"', named)) == found
    assert (ROOT / "lastbit" / "py.typed").exists()


def test_versions_agree():
    assert f'version = "{lastbit.__version__}"' in PROJECT


def test_the_readme_names_every_feature_and_its_kernel_is_short():
    text = (ROOT / "README.md").read_text()
    for name in (*capabilities.FEATURES, *capabilities.FORMS, *capabilities.FORMATS):
        assert f"`{name}`" in text, name
    kernel = text.split("```python\n")[1].split("```")[0]
    assert len(kernel.splitlines()) <= 25
    compile(kernel, "README.md", "exec")


def test_examples_in_the_documentation():
    assert doctest.testmod(formats).failed == 0
