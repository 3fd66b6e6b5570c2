"""The contents of a release. `make release-check` builds, installs and runs one."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

import graphfeed as gf

REPOSITORY = Path(__file__).resolve().parents[2]
LARGEST_WHEEL = 5_000_000
LARGEST_LIBRARY = 1_000_000
OPERATIONS = "tests.stand_ins.operation_bits"
MOST_KERNELS = 70
"""Number of kernels that operations call for certain; files and ranks call the others."""
LICENCES = ("LICENSE", "NOTICE", "graphfeed/storage/datasets/WORDNET-LICENSE.txt")
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
PLACEHOLDER = "OWNER"
"""Stands for the repository's account on GitHub, as in https://github.com/OWNER/graphfeed, until it has one."""
ADDRESSED = ("*.md", "*.toml", "*.cff", "conda", "docs", ".github")
"""Files that may have an address of the repository."""
CONDA_NAMES = {"torch": "pytorch", "typing-extensions": "typing_extensions"}


def run(*command: str | Path, cwd: Path = REPOSITORY) -> str:
    """Run a command without the paths of the checkout, and return its output."""
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_changelog_begins_with_the_version() -> None:
    version, date = re.findall(r"^## (\S+) \((.*)\)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert version == gf.__version__
    assert date == "unreleased" or re.fullmatch(r"\d{4}-\d\d-\d\d", date)
    if tag := os.environ.get("RELEASE_TAG"):
        assert tag == f"v{version}"
        assert date != "unreleased", "write the date of the release into CHANGELOG.md"
        citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
        assert (citation["version"], str(citation["date-released"])) == (version, date)


@pytest.mark.skipif(not os.environ.get("RELEASE_TAG"), reason="only a release needs addresses")
def test_addresses_of_the_repository_are_filled_in() -> None:
    found = run("git", "ls-files", "--", *ADDRESSED).splitlines()
    texts = {name: (REPOSITORY / name).read_text(errors="replace") for name in found}
    left = [
        name
        for name, text in texts.items()
        if re.search(rf"\b{PLACEHOLDER}(?=/graphfeed|\.github\.io|$)", text, re.MULTILINE)
    ]
    assert left == [], f"replace {PLACEHOLDER} by the repository's account"


def test_the_conda_recipe_is_that_of_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    about, backend = project["project"], project["build-system"]["requires"]
    recipe = yaml.safe_load((REPOSITORY / "conda" / "recipe.yaml").read_text())
    python = about["requires-python"].removeprefix(">=")
    assert recipe["context"] == {"version": gf.__version__, "python_min": python}
    build, requirements = recipe["build"], recipe["requirements"]
    assert build["noarch"] == "python"
    assert build["python"]["entry_points"] == [f"{name} = {where}" for name, where in about["scripts"].items()]
    assert requirements["run"] == ["python >=${{ python_min }}", *map(conda_requirement, about["dependencies"])]
    assert requirements["host"] == ["python ${{ python_min }}.*", "pip", *map(conda_requirement, backend)]
    assert recipe["about"]["license"] == about["license"]
    assert recipe["about"]["license_file"] == [*LICENCES]
    assert all((REPOSITORY / name).is_file() for name in LICENCES)


def conda_requirement(requirement: str) -> str:
    """Return a requirement of pip as conda-forge writes it."""
    found = re.fullmatch(r"([\w-]+)(.*)", requirement)
    assert found, requirement
    return f"{CONDA_NAMES.get(found[1], found[1])} {found[2]}".strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """Build a wheel of the checkout."""
    backend = pytest.importorskip("hatchling.build")
    pytest.importorskip("hatch_fancy_pypi_readme")
    folder, before = tmp_path_factory.mktemp("wheel"), Path.cwd()
    os.chdir(REPOSITORY)
    try:
        name = backend.build_wheel(str(folder))
    finally:
        os.chdir(before)
    assert name == f"graphfeed-{gf.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(folder / name) as archive:
        yield archive


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="this is not a checkout")
def test_the_wheel_has_the_package_its_licences_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    package = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "graphfeed").splitlines()
    assert {"graphfeed/py.typed", "graphfeed/storage/datasets/wordnet.npz"} <= {*package}
    about = f"graphfeed-{gf.__version__}.dist-info"
    licences = [f"{about}/licenses/{name}" for name in LICENCES]
    others = [f"{about}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")]
    assert sorted(wheel.namelist()) == sorted([*package, *licences, *others])
    assert Path(str(wheel.filename)).stat().st_size < LARGEST_WHEEL


def test_the_readme_on_an_index_links_to_no_page_that_is_not_there(wheel: zipfile.ZipFile) -> None:
    about = wheel.read(f"graphfeed-{gf.__version__}.dist-info/METADATA").decode()
    headers, _, text = about.partition("\n\n")
    assert "Description-Content-Type: text/markdown" in headers.splitlines()
    assert text.startswith("# graphfeed\n")
    assert "| PyG | One import." in text
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []


def calls_of_make(workflow: Path) -> set[str]:
    """Return the make targets in the steps of a workflow."""
    made: set[str] = set()
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        calls = re.findall(r"^make (.+)$", "\n".join(step.get("run", "") for step in job["steps"]), re.MULTILINE)
        words = {word for call in calls for word in call.split() if "=" not in word}
        if '"$TARGET"' in words:
            words |= {entry["target"] for entry in job["strategy"]["matrix"]["include"]}
        made |= words - {'"$TARGET"'}
    return made


def test_workflows_make_targets_that_there_are_and_are_given_no_more_rights_than_they_need() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert {path.stem for path in WORKFLOWS} == {"docs", "publish", "tests", "weekly"}
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert calls_of_make(path) <= targets
        assert workflow["permissions"] == {}
        for job in workflow["jobs"].values():
            assert job["timeout-minutes"] <= 120
            assert job.get("permissions", {}).keys() <= {"contents", "id-token"}
    rights = {
        (path.stem, name, right)
        for path in WORKFLOWS
        for name, job in yaml.safe_load(path.read_text())["jobs"].items()
        for right, granted in job.get("permissions", {}).items()
        if granted == "write"
    }
    assert rights == {("publish", "publish", "id-token"), ("docs", "publish", "contents")}
    site = yaml.safe_load(text_of("docs"))["jobs"]
    assert site["publish"]["if"] == "github.event_name == 'push'", "pull requests publish nothing"


def test_actions_are_pinned_and_a_bot_keeps_them_new() -> None:
    used = [line.strip(" -") for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    assert used
    assert [line for line in used if not re.fullmatch(r"uses: [\w./-]+@[0-9a-f]{40} # v[\d.]+", line)] == []
    updates = yaml.safe_load((REPOSITORY / ".github" / "dependabot.yml").read_text())["updates"]
    assert [update["package-ecosystem"] for update in updates] == ["github-actions"]


def test_forms_of_issues_ask_for_what_is_needed() -> None:
    folder = REPOSITORY / ".github" / "ISSUE_TEMPLATE"
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in folder.glob("*.yml")}
    assert forms.keys() == {"bug", "feature", "question", "scale"}
    for form in forms.values():
        assert {"name", "description", "body"} <= form.keys()
        fields = [part for part in form["body"] if part["type"] != "markdown"]
        assert len({part["id"] for part in fields}) == len(fields)
        assert all(part["attributes"]["label"] for part in fields)
        assert any(part.get("validations", {}).get("required") for part in fields)
    (doctor,) = (part for part in forms["bug"]["body"] if part.get("id") == "doctor")
    assert "graphfeed doctor" in doctor["attributes"]["label"]
    assert doctor["validations"]["required"]


def text_of(workflow: str) -> str:
    return (REPOSITORY / ".github" / "workflows" / f"{workflow}.yml").read_text()


def test_workflows_test_the_oldest_releases_that_the_package_asks_for() -> None:
    asked = dict(
        re.findall(r'^    "([\w-]+)>=([\d.]+)[,<\d.]*"', (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    )
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)", (REPOSITORY / "constraints-oldest.txt").read_text(), re.MULTILINE))
    for name in ("torch", "numba", "numpy", "torchdata", "typing-extensions"):
        assert re.fullmatch(rf"{re.escape(asked[name])}(\.0)*", pinned[name]), name
    assert "constraints-oldest.txt" in text_of("tests")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a source distribution of the checkout, and a wheel of that."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, REPOSITORY)
    return folder


@pytest.fixture(scope="module")
def platform_wheel(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the wheel of this platform, with a library of kernels."""
    (pure,), folder = built.glob("*.whl"), tmp_path_factory.mktemp("platform")
    return Path(run(sys.executable, "-m", "graphfeed.build_kernels", "--wheel", pure, "--out", folder).strip())


def install(wheel: Path, folder: Path, without: tuple[str, ...] = ()) -> Path:
    """Install a wheel in a new environment that has all other packages of this one, except some; return its Python."""
    venv.create(folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel)
    (site,) = folder.glob("lib/*/site-packages")
    for path in (path for own in sys.path if own.endswith("site-packages") for path in Path(own).iterdir()):
        left_out = path.suffix == ".pth" or path.name.startswith(("graphfeed", "__editable__", *without))
        if not left_out and not (site / path.name).exists():
            (site / path.name).symlink_to(path)
    return python


def check_installed(python: Path, folder: Path) -> None:
    """Run the doctor and the program of the README in an environment."""
    about = "import graphfeed, importlib.metadata as about; print(graphfeed.__file__, about.version('graphfeed'))"
    (site,) = python.parents[1].glob("lib/*/site-packages")
    assert run(python, "-c", about, cwd=folder) == f"{site / 'graphfeed' / '__init__.py'} {gf.__version__}\n"
    run(python.with_name("graphfeed"), "doctor", cwd=folder)
    text = (REPOSITORY / "README.md").read_text()
    shown = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    program, expected = ("".join(parts) for parts in zip(*shown, strict=True))
    assert run(python, "-c", program, cwd=folder) == expected


@pytest.mark.release
@pytest.mark.timeout(1800)  # kernels are compiled again
class TestRelease:
    """Tests that take half a minute or more."""

    def test_an_index_would_take_it(self, built: Path) -> None:
        run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir())
        run(sys.executable, "-m", "check_wheel_contents", next(built.glob("*.whl")))

    def test_a_build_of_the_source_distribution_elsewhere_has_the_same_bytes(self, built: Path, tmp_path: Path) -> None:
        (source,) = built.glob("*.tar.gz")
        with tarfile.open(source) as archive:
            archive.extractall(tmp_path, filter="data")
        (folder,) = tmp_path.iterdir()
        (folder / "PKG-INFO").unlink()  # written by the build
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", folder)
        assert digests_in(tmp_path / "dist") == digests_in(built)

    def test_it_runs_in_an_environment_of_its_own(self, built: Path, tmp_path: Path) -> None:
        (wheel,) = built.glob("*.whl")
        check_installed(install(wheel, tmp_path / "venv"), tmp_path)

    def test_the_wheel_of_this_platform_adds_a_library_and_moves_numba_to_an_extra(
        self, built: Path, platform_wheel: Path
    ) -> None:
        run(sys.executable, "-m", "twine", "check", "--strict", platform_wheel)
        run(sys.executable, "-m", "check_wheel_contents", platform_wheel)
        pure, own = (zipfile.ZipFile(path) for path in (next(built.glob("*.whl")), platform_wheel))
        (library,) = {*own.namelist()} - {*pure.namelist()}
        assert library.startswith("graphfeed/ops/cpu/kernels.so.")
        assert own.getinfo(library).compress_size < LARGEST_LIBRARY
        changed = {name for name in pure.namelist() if pure.read(name) != own.read(name)}
        about = f"graphfeed-{gf.__version__}.dist-info"
        assert changed == {f"{about}/{name}" for name in ("METADATA", "RECORD", "WHEEL")}
        before, after = (wheel.read(f"{about}/METADATA").decode().splitlines() for wheel in (pure, own))
        (numba,) = {*before} - {*after}
        assert numba.startswith("Requires-Dist: numba")
        assert f"{numba}; extra == 'compile'" in after
        assert {*after} < {*before}
        tag = platform_wheel.stem.partition("py3-none-")[2]
        assert f"Tag: py3-none-{tag}\n" in own.read(f"{about}/WHEEL").decode()

    def test_the_wheel_of_this_platform_runs_without_numba_and_gives_the_same_bits(
        self, platform_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        python = install(platform_wheel, tmp_path / "venv", without=("numba", "llvmlite"))
        check_installed(python, tmp_path)
        missing = "import importlib.util as own; print(own.find_spec('numba'), own.find_spec('llvmlite'))"
        assert run(python, "-c", missing, cwd=tmp_path) == "None None\n"
        run(python, REPOSITORY / "examples" / "wordnet_sage.py", cwd=tmp_path)
        (tmp_path / "tests").symlink_to(REPOSITORY / "tests")
        program = "import json; from tests.laws.test_golden_bits import ALL, measure\n"
        program += "print(json.dumps({name: measure(name) for name in ALL}))"
        held = json.loads((REPOSITORY / "tests" / "laws" / "golden_bits.json").read_text())
        assert json.loads(run(python, "-c", program, cwd=tmp_path)) == held
        own = json.loads(run(python, "-m", OPERATIONS, cwd=tmp_path))
        monkeypatch.setenv("GRAPHFEED_KERNELS", "compile")
        here = json.loads(run(sys.executable, "-m", OPERATIONS))
        monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
        interpreted = json.loads(run(python, "-m", OPERATIONS, cwd=tmp_path))
        assert own["bits"] == here["bits"] == interpreted["bits"]
        assert own["kernels"] == here["kernels"]
        assert own["modules"] == own["compiled"] == interpreted["kernels"] == []
        assert len(own["kernels"]) > MOST_KERNELS


def digests_in(folder: Path) -> dict[str, str]:
    """Return the digest of each file in a folder."""
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


ROOT = Path(__file__).resolve().parents[2]
TORCH_OF_CUDA_12, TORCH_OF_CUDA_13 = "torch==2.9.1", "torch==2.14.1"


def requirements(extra: str) -> list[str]:
    """Return the requirements of an extra, including those of other extras that it names."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found: list[str] = []
    for requirement in extras[extra]:
        own = re.fullmatch(r"graphfeed\[(\w+)\]", requirement)
        found += requirements(own[1]) if own else [requirement]
    return found


@pytest.fixture(scope="module")
def latest_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a pip that reads the requirements of wheels without downloading them; skip without a package index."""
    folder = tmp_path_factory.mktemp("pip")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--retries=0", "--target", str(folder), "pip>=25.3"]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("there is no index of packages")
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("extra", "torch", "fits"),
    [("cuda13", TORCH_OF_CUDA_13, True), ("cuda12", TORCH_OF_CUDA_12, True), ("cuda12", TORCH_OF_CUDA_13, False)],
)
def test_pip_finds_what_fits_torch_or_names_the_conflict(
    latest_pip: Path, tmp_path: Path, extra: str, torch: str, fits: bool
) -> None:
    assert requirements("cuda") == requirements("cuda13")
    report = tmp_path / "report.json"
    options = ["--dry-run", "--ignore-installed", "--use-feature=fast-deps", f"--report={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, torch, *requirements(extra)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(latest_pip)},
    )
    assert (done.returncode == 0) == fits, done.stderr
    if not fits:
        assert "conflicting dependencies" in done.stderr
        return
    found = {
        part["metadata"]["name"]: part["metadata"]["version"] for part in json.loads(report.read_text())["install"]
    }
    (compiler,) = (name for name in found if name.startswith("nvidia-cuda-nvrtc"))
    cuda = "12" if torch == TORCH_OF_CUDA_12 else "13"
    assert found[compiler].startswith(cuda)
    assert found[f"cupy-cuda{cuda}x"] >= "14"
