"""The import rule of the architecture, held by the syntax trees of all sources; no exceptions.

protocols <- testbed's domain packages <- nodes <- hosts, simulator, executors <- entry points
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from testbed.host.policies import BUILT_IN, METHODS
from testbed.topology.names import POLICY_NAMES

ROOT = Path(__file__).parents[2]
OURS = ("protocols", "testbed", "nodes", "run")
LAYERS = (
    ("protocols",),
    (
        "testbed.errors",
        "testbed.rng",
        "testbed.ran",
        "testbed.gpu",
        "testbed.topology",
        "testbed.training",
        "testbed.coexec",
        "testbed.shaping",
        "testbed.slotbench",
        "testbed.spare_bound",
        "testbed.record.schema",
    ),
    ("nodes",),
    (
        "testbed.host",
        "testbed.sim",
        "testbed.sim_trainer",
        "testbed.record",
        "testbed.experiments",
        "testbed.coexec_cli",
        "testbed.weaver_cli",
        "testbed.executors",
    ),
    ("run",),
)
DOMAIN, NODES, ENTRY = 1, 2, 4
IMPURE = {
    *("asyncio", "multiprocessing", "os", "random", "socket", "subprocess", "threading", "time"),
    *("torch", "uvloop", "zmq"),
}
IMPORTERS = ("import_module", "__import__")
LONGEST_FILE = 420


def sources() -> list[Path]:
    files = [path for top in OURS[:3] for path in (ROOT / top).rglob("*.py")]
    return sorted([*files, ROOT / "run.py"])


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def layer(module: str) -> int | None:
    """The layer with the longest prefix of the module; entry points are above all."""
    if module.rpartition(".")[2] == "__main__":
        return ENTRY
    matches = [
        (len(prefix), index)
        for index, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if within(module, prefix)
    ]
    return max(matches)[1] if matches else None


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, module) of every import, wherever it stands: in functions, under TYPE_CHECKING."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            # "from testbed import rng" imports a module; "from x.y import Name" does no harm here.
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(IMPORTERS):
            yield node.lineno, ast.unparse(node.args[0]).strip("'")


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_every_module_belongs_to_a_layer():
    modules = [module_of(path) for path in sources()]
    assert len(modules) > 50
    assert [module for module in modules if layer(module) is None] == ["testbed"]
    assert (ROOT / "testbed" / "__init__.py").read_text().strip() == ""


def test_imports_run_one_way():
    wrong = []
    for path in sources():
        own = layer(module_of(path))
        for line, name in imports(path):
            if name.partition(".")[0] in OURS and (layer(name) or 0) > (own or 0):
                wrong.append(f"{place(path, line)} imports {name}")
    assert wrong == []


def test_nodes_and_domain_packages_are_pure():
    wrong = [
        f"{place(path, line)} imports {name}"
        for path in sources()
        if layer(module_of(path)) in (DOMAIN, NODES)
        for line, name in imports(path)
        if name.partition(".")[0] in IMPURE
    ]
    assert wrong == []


def test_executors_alone_import_torch():
    wrong = [
        f"{place(path, line)} imports {name}"
        for path in sources()
        if not within(module_of(path), "testbed.executors")
        for line, name in imports(path)
        if name.partition(".")[0] in ("torch", "torchft")
    ]
    assert wrong == []


def test_nothing_pickles():
    wrong = [
        f"{place(path, line)} imports {name}"
        for path in sources()
        for line, name in imports(path)
        if name.partition(".")[0] in ("pickle", "shelve", "marshal", "dill", "cloudpickle")
    ]
    assert wrong == []


def test_files_stay_readable():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()
    }
    assert {name: n for name, n in lengths.items() if n > LONGEST_FILE} == {}


def test_short_names_of_policies_stand_for_policies():
    assert {slot: tuple(names) for slot, names in BUILT_IN.items()} == POLICY_NAMES
    assert METHODS.keys() == BUILT_IN.keys()


@pytest.mark.parametrize("verb", ["check", "sim"])
def test_light_verbs_import_nothing_heavy(verb, tmp_path):
    """Also run: the imports within functions count, and so do those of what is imported."""
    script = (
        "import sys, run\n"
        "try:\n"
        "    run.main(sys.argv[1:])\n"
        "finally:\n"
        "    heavy = {'torch', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "    print('heavy:', sorted(heavy))\n"
    )
    topology = str(ROOT / "topologies" / "quickstart.toml")
    arguments = {
        "check": [topology],
        "sim": [topology, "--duration", "0.01", "--set", "time.warmup_us=2500", "--no-report"],
    }[verb]
    if verb == "sim":
        arguments += ["--run-dir", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", script, verb, *arguments],
        cwd=ROOT,
        env={"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: []"
