"""The pages of the repository: their code runs, their links are valid, and the names in them exist."""

import argparse
import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from graphfeed.distributed.servers import serve_command
from tests.faults import read_faults
from tests.kinds.pages import check_code, dead_links, files_of, rows
from tests.peers import graphbolt_surface as theirs
from tests.peers.test_surface import KNOWN, find
from tests.stand_ins.rank_processes import free_port
from tests.stand_ins.scripts import REPOSITORY, SECONDS
from tests.stand_ins.served import TOKEN, make_certificate

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]
GRAPHBOLT = ROOT / "docs" / "from-graphbolt.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def full_names(text: str) -> list[str]:
    """Return the names in a text; a name that begins with a dot belongs to the class before it."""
    found: list[str] = []
    for name in re.findall(r"`([^`]+)`", text):
        found.append(f"{found[-1].partition('.')[0]}{name}" if name.startswith(".") else name)
    return found


SAME = full_names(GRAPHBOLT.read_text().partition("\n## Names\n")[2].partition("\n\n|")[0])
TABLE = [
    (full_names(names), state, text) for state in ("different", "replaced") for names, text in rows(GRAPHBOLT, state)
]
STATES = dict.fromkeys(SAME, "same") | {name: state for names, state, _ in TABLE for name in names}
REPLACED = theirs.REPLACED | {"FetchCachedInsubgraphData"}


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_and_prints_what_is_shown(page: Path) -> None:
    assert check_code(page) > 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="torchrun needs libuv there")
def test_the_program_of_several_ranks_runs_as_two(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "ddp.md").read_text()
    program = tmp_path / "train.py"
    program.write_text("".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)))
    printed = run("torch.distributed.run", "--standalone", "--nproc-per-node", "2", program, cwd=ROOT)
    # Ranks write without a buffer: one may begin before the other has ended its line.
    assert sorted(re.findall(r"(\d) mini-batches", printed)) == ["5", "6"]


def test_links_of_pages_lead_somewhere() -> None:
    pages = [*PAGES, *ROOT.glob("*.md")]
    assert {str(page): dead for page in pages if (dead := dead_links(page))} == {}
    assert [str(page) for page in pages if re.search(r"(?<!!)\[\]\(", page.read_text())] == []


def test_each_promise_has_tests_that_there_are() -> None:
    promises = list(rows(ROOT / "docs" / "reliability.md", "promise"))
    assert len(promises) == len({promise for promise, *_ in promises})
    held = [TEST.findall(by) for _, by, _ in promises]
    assert all(held)
    missing = [
        f"{path}::{name}"
        for path, name in {test for tests in held for test in tests}
        if f"def {name}(" not in (ROOT / path).read_text()
    ]
    assert missing == []


FAULTS = {fault.name: fault for fault in read_faults()}


def test_each_promise_has_a_fault_that_its_tests_find() -> None:
    for promise, by, named in rows(ROOT / "docs" / "reliability.md", "promise"):
        found_by = [test for name in re.findall(r"`(.+?)`", named) for test in FAULTS[name].tests]
        assert found_by, promise
        assert {test.partition("[")[0] for test in found_by} <= {"::".join(test) for test in TEST.findall(by)}, promise


def test_each_fault_is_a_change_of_one_place_that_tests_look_for() -> None:
    for fault in FAULTS.values():
        assert fault.apply(ROOT) != (ROOT / fault.file).read_text()
        assert fault.tests
        for path, _, name in (test.partition("[")[0].partition("::") for test in fault.tests):
            assert f"def {name}(" in (ROOT / path).read_text(), fault.name


def is_thorough(path: str, name: str) -> bool:
    """Return whether `make test` leaves out all cases of a test."""
    tree = ast.parse((ROOT / path).read_text())
    (test,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    of_all = [node.value for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    marks = {ast.unparse(mark) for mark in [*test.decorator_list, *(ast.walk(of_all[0]) if of_all else ())]}
    return "pytest.mark.thorough" in marks


def test_a_promise_says_where_only_the_larger_set_of_tests_holds_it() -> None:
    for promise, by, _ in rows(ROOT / "docs" / "reliability.md", "promise"):
        tests = TEST.findall(by)
        assert all(is_thorough(*test) for test in tests) == ("`make test-all`" in by), promise


def test_graphbolts_names_are_on_the_page_once_with_their_state() -> None:
    listed = [*SAME, *(name for names, _, _ in TABLE for name in names)]
    assert sorted(set(KNOWN) - set(listed)) == [], "not on the page"
    assert sorted({name for name in listed if listed.count(name) > 1}) == [], "twice on the page"
    assert [name for name in sorted(STATES.keys() - set(KNOWN) - REPLACED) if find(name) is None] == []
    assert {name for name, state in STATES.items() if state == "replaced"} == REPLACED
    assert [name for name, _ in theirs.DIFFERENT if STATES[name] != "different"] == []


def test_parameters_that_differ_are_named() -> None:
    texts = {name: text for names, _, text in TABLE for name in names}
    page = GRAPHBOLT.read_text()  # which contains parameters that many names ignore
    places = {
        key: page if why in ("ignored", "by name alone") else texts[key[0]] for key, why in theirs.DIFFERENT.items()
    }
    assert [key for key, text in places.items() if f"`{key[1]}`" not in text] == []


README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.slow
def test_the_code_runs_and_prints_what_is_shown() -> None:
    assert check_code(README) == 1


PAGE = REPOSITORY / "docs" / "how-to" / "pool-of-samplers.md"
FILES = files_of(PAGE)


@pytest.mark.slow
def test_they_send_all_samples_of_each_epoch_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = make_certificate(tmp_path)
    for name, content in (("chain.pem", certificate), ("key.pem", key), ("token", TOKEN.encode() + b"\n")):
        (tmp_path / name).write_bytes(content)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text.replace("...  # train", "print(len(sample['seeds']))  # train"))
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["trainer.py", address])
    sampler = subprocess.Popen(
        [sys.executable, "sampler.py", address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        runpy.run_path("trainer.py", run_name="__main__")
        printed, _ = sampler.communicate(timeout=SECONDS)
    finally:
        sampler.kill()
    assert (sampler.returncode, printed) == (0, "")
    assert capsys.readouterr().out == "".join("100\n" * 20 + f"epoch {epoch} is over\n" for epoch in range(3))


def test_the_manifest_mounts_what_it_has_and_gives_options_that_there_are() -> None:
    page = (ROOT / "docs" / "many-machines.md").read_text()
    manifest = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    spec = manifest["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert manifest["spec"]["selector"]["matchLabels"] == manifest["spec"]["template"]["metadata"]["labels"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"] for volume in spec["volumes"]]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {container["readinessProbe"]["httpGet"]["port"], container["livenessProbe"]["tcpSocket"]["port"]} == {*ports}
    parser = argparse.ArgumentParser()
    serve_command.add_serve_arguments(parser)
    options = parser.parse_args(container["command"][2:])
    assert [int(bind.rpartition(":")[2]) for bind in (options.bind, options.health_bind)] == [*ports.values()]


CONTRIBUTING = ROOT / "CONTRIBUTING.md"
EXAMPLES = files_of(CONTRIBUTING)

ADD_TO_PACKAGES = '''"""Let the packages have the modules of this folder, too."""

from importlib import import_module
from pathlib import Path

import tests.conftest  # noqa: F401 (the settings of Hypothesis)

HERE = Path(__file__).parent
for folder in {path.parent for path in (HERE / "graphfeed").rglob("*.py")}:
    import_module(".".join(folder.relative_to(HERE).parts)).__path__.append(str(folder))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the page's files, each under its name."""
    folder = tmp_path_factory.mktemp("contribution")
    for name, text in EXAMPLES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(*command: str | Path, cwd: Path) -> str:
    """Return the output of a Python program, or fail with it."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_files_are_new_and_each_has_its_test() -> None:
    assert [name for name in EXAMPLES if (ROOT / name).exists()] == []
    own = {Path(name).stem for name in EXAMPLES if name.startswith("graphfeed/")}
    assert {f"test_{name}" for name in own} <= {Path(name).stem for name in EXAMPLES}


@pytest.mark.slow
def test_the_examples_pass_their_tests(folder: Path) -> None:
    (folder / "conftest.py").write_text(ADD_TO_PACKAGES)
    options = ["--doctest-modules", "--import-mode=importlib", "-p", "no:cacheprovider", f"-c{ROOT / 'pyproject.toml'}"]
    printed = run("pytest", "-q", *options, f"--rootdir={folder}", folder, cwd=ROOT)
    assert re.search(r"^4 passed", printed, re.MULTILINE), printed


def test_the_examples_keep_the_style(folder: Path) -> None:
    ours = 'lint.isort.known-first-party = ["graphfeed"]'
    settings = ("--config", ROOT / "pyproject.toml", "--config", ours, "--no-cache", ".")
    run("ruff", "check", *settings, cwd=folder)
    run("ruff", "format", "--check", *settings, cwd=folder)
