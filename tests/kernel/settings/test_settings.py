"""Settings: what each source may say, which one wins, and how every slip is named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from support.documents import DOCS, PAGES, settings_schema, written
from support.recording import how_to_record
from support.repos import git, make_repository
from support.snapshots import check_words, raises

import gitlease
from gitlease.kernel.git.repository import Repository, discover
from gitlease.kernel.rules.errors import GitleaseError, Invalid, UsageError
from gitlease.kernel.settings.schema import (
    FILE,
    KEYS,
    MAX_FILE,
    Found,
    Key,
    Location,
    Setting,
    Settings,
    load_settings,
    read_settings_file,
    resolve_remote,
    set_config,
)
from gitlease.kernel.settings.text import parse_settings, settings_yaml


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """An empty repository."""
    return make_repository(tmp_path / "repo")


def load(
    repo: Path, flags: dict[str, str] | None = None, environ: dict[str, str] | None = None
) -> Settings:
    return load_settings(discover(str(repo)), environ=environ or {}, flags=flags or {})


def setting(settings: Settings, key: str) -> Setting:
    return next(found for found in settings.table() if found.key == key)


def write(repo: Path, text: str) -> None:
    (repo / FILE).write_text(text, encoding="utf-8")


def refused(text: str | bytes) -> Invalid:
    with pytest.raises(Invalid) as raised:
        parse_settings(text.encode() if isinstance(text, str) else text)
    return raised.value


# Precedence


def test_table_is_stable_and_plain(repo: Path) -> None:
    table = load(repo).table()
    assert [found.key for found in table] == list(KEYS)
    assert {found.source for found in table} == {"built-in"}
    shown = json.loads(json.dumps({found.key: found.value for found in table}))
    assert (shown["lease.ttl"], shown["stale.after"], shown["lease.remote"]) == ("15m", "1w", None)


def test_every_setting_is_read_somewhere() -> None:
    package = Path(gitlease.__file__).parent
    code = "\n".join(x.read_text(encoding="utf-8") for x in package.rglob("*.py"))
    names = [name for name, x in vars(Settings).items() if isinstance(x, Key)]
    unread = [name for name in names if not re.search(rf"\.{name}\b", code)]
    assert not unread, "`config` accepts these, and nothing reads them"


def test_every_setting_is_on_a_page() -> None:
    """In a table by its whole name, or as a line of a file that a page shows."""
    pages = "\n".join(PAGES[x].read_text(encoding="utf-8") for x in ("settings", "tasks"))
    shown = {*re.findall(r"`([\w.]+)`", pages), *re.findall(r"\b(\w+):", pages)}
    missing = [x for x in KEYS if shown.isdisjoint({x, x.rpartition(".")[2]})]
    assert not missing, "add them to docs/settings.md"


LEVELS = [
    # key, flag, variable, name in git config, four values from the strongest to the weakest
    ("lease.ttl", "ttl", "GITLEASE_TTL", "lease.ttl", ("1m", "2m", "3m", "4m")),
    ("lease.layer", "layer", "GITLEASE_LAYER", "lease.layer", ("a", "b", "c", "d")),
    ("lease.remote", "remote", "GITLEASE_REMOTE", "lease.remote", ("a", "b", "c", "d")),
    ("lease.ref_prefix", None, None, "lease.refPrefix", ("", "", "refs/c", "refs/d")),
    ("guard.mode", None, None, "lease.guardMode", ("", "", "warn", "off")),
]


@pytest.mark.parametrize(
    ("key", "flag", "variable", "name", "values", "strongest"),
    [(*level, strongest) for level in LEVELS for strongest in range(4) if level[4][strongest]],
)
@pytest.mark.parametrize("blank", [False, True], ids=["absent", "empty"])
def test_precedence(
    repo: Path,
    key: str,
    flag: str | None,
    variable: str | None,
    name: str,
    values: tuple[str, ...],
    strongest: int,
    blank: bool,
) -> None:
    """Each source beats all below it; a source above that is absent or empty says nothing."""
    said = {level: values[level] for level in range(strongest, 4)}
    if blank:
        said |= dict.fromkeys(range(strongest), "")
    section, _, word = key.partition(".")
    write(repo, f"{section}:\n  {word}: {said.get(3, '')}\n")
    if 2 in said:
        git(repo, "config", name, said[2])
    environ = {variable: said[1]} if variable and 1 in said else {}
    flags = {flag: said[0]} if flag and 0 in said else {}
    sources = (
        f"flag --{flag}",
        f"environment {variable}",
        f"git config (local: .git/config) {name}",
        f"{FILE}:2",
    )
    settings = load(repo, flags, environ)
    assert setting(settings, key) == Setting(key, values[strongest], sources[strongest])
    assert settings.ttl_is_default == (key != "lease.ttl")
    assert settings.remote_explicit == (key == "lease.remote" and strongest == 0)


def test_all_empty_is_built_in(repo: Path) -> None:
    write(repo, 'lease: {ttl: "", layer: , remote: ~, ref_prefix: null}\nguard:\n')
    for name in ("ttl", "remote", "layer", "refPrefix", "guardMode"):
        git(repo, "config", f"lease.{name}", "")
    empty = {"GITLEASE_TTL": "", "GITLEASE_REMOTE": "", "GITLEASE_LAYER": ""}
    settings = load(repo, {"ttl": "", "remote": "", "layer": ""}, empty)
    assert {found.source for found in settings.table()} == {"built-in"}


def test_file_is_read_at_the_root_from_a_subfolder(repo: Path) -> None:
    write(repo, "lease: {ttl: 1h}")
    (repo / "sub").mkdir()
    (repo / "sub" / FILE).write_text("lease: {ttl: 2h}")
    assert load(repo / "sub").ttl == 3600


def test_bare_repository_has_no_file(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    (tmp_path / "bare.git" / FILE).write_text("lease: {ttl: 2h}")
    assert load(tmp_path / "bare.git").ttl_is_default


def test_people_are_handles_where_backlog_md_is_or_where_it_is_said(repo: Path) -> None:
    elsewhere = "['docs/backlog/*.md', 'backlogs/*.md', '*/backlog/*.md', 'backlog.md']"
    for tasks, handles in (
        ("{files: ['backlog/tasks/*.md']}", True),
        ("{files: ['./Backlog/*.md']}", True),
        (f"{{files: {elsewhere}}}", False),
        ("{completed: ['backlog/completed']}", False),
        ("{files: ['docs/tasks/*.md'], handles: yes}", True),
        ("{files: ['backlog/tasks/*.md'], handles: false}", False),
        ("{files: ['backlog/tasks/*.md'], handles: }", True),
    ):
        write(repo, f"tasks: {tasks}")
        assert load(repo).handles is handles


# Bad values outside of the file

BAD_VALUES = {
    "ttl": ["15x", "0", "1.0001s", "11000w"],
    "layer": ["a b", "x" * 65],
    "remote": ["-oProxyCommand=x", "EXT::sh", "a\x7fb", "   "],
}
BAD_IN_GIT = {
    "guardMode": ["deny"],
    "guardOffline": ["true"],
    "guardMaxAge": ["soon"],
    "refPrefix": ["heads/x"],
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_bad_flag_is_a_usage_error_and_a_bad_variable_invalid(repo: Path, name: str) -> None:
    for value in BAD_VALUES[name]:
        with raises(UsageError):
            load(repo, {name: value})
        with raises(Invalid):
            load(repo, {name: ""}, {f"GITLEASE_{name.upper()}": value})


@pytest.mark.parametrize("name", [*BAD_VALUES, *BAD_IN_GIT])
def test_bad_git_configuration_is_invalid(repo: Path, name: str) -> None:
    for value in (BAD_VALUES | BAD_IN_GIT)[name]:
        git(repo, "config", f"lease.{name}", value)
        with raises(Invalid):
            load(repo)


def test_weaker_sources_are_checked_too(repo: Path) -> None:
    git(repo, "config", "lease.ttl", "soon")
    with raises(Invalid):
        load(repo, {"ttl": "5m"}, {"GITLEASE_TTL": "5m"})


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("lease.guardmod", "did you mean lease.guardMode?"),
        ("lease.ref-prefix", "did you mean lease.refPrefix?"),
        ("lease.guardTimeout", None),
        ("lease.origin.session", None),
    ],
)
def test_unknown_key_in_git_configuration(repo: Path, key: str, hint: str | None) -> None:
    git(repo, "config", "lease.session", "s1")
    assert load(repo).ttl_is_default, "that one is known"
    git(repo, "config", key, "1")
    with pytest.raises(Invalid) as raised:
        load(repo)
    check_words(raised.value.message)
    assert raised.value.hints
    assert hint is None or raised.value.hints == (hint,)


def test_ref_prefixes_are_those_that_git_takes(repo: Path) -> None:
    for good in ("refs/heads/a.b/leases", "refs/größe", "refs/a@b", "refs/a{b"):
        git(repo, "check-ref-format", f"{good}/global")
        write(repo, f"lease: {{ref_prefix: '{good}'}}")
        assert load(repo).ref_prefix == good
    bad = "refs refs/ refs/a/ /refs/a refs//a heads/a refs/.a refs/a/.b refs/a..b refs/a.lock"
    bad += " refs/a.lock/b refs/a. refs/a~1 refs/a:b refs/a? refs/* refs/[a refs/a@{b refs/a^"
    for text in (*bad.split(), "refs/a b", "refs/a\\\\b", "refs/a\u200eb", "refs/" + "a" * 300):
        error = refused(f'lease: {{ref_prefix: "{text}"}}')
        assert "lease.ref_prefix" in error.message
        assert "refs/gitlease" in error.hints[0]
    for text in ("refs/heads", "refs/remotes"):
        check_words(refused(f"lease: {{ref_prefix: {text}}}").hints)


@pytest.mark.parametrize("text", ["refs/heads/feature", "refs/Heads/main", "refs/tags/leases/v1"])
def test_ref_prefix_of_branches_is_refused_in_file_only(repo: Path, text: str) -> None:
    check_words(refused(f"lease: {{ref_prefix: {text}}}"))
    git(repo, "config", "lease.refPrefix", text)
    assert load(repo).ref_prefix == text


# The file

FULL = """\
schema: 1
lease: {remote: origin, layer: Team, ttl: 20m, ref_prefix: refs/heads/gitlease}
tasks:
  files: ["backlog/*.md", 'notes/']
  completed: [backlog/completed]
  required: no
  fields: {assigned: assignee, depends_on: dependencies}
  statuses:
    todo: [To Do]
    done:
      - Done
      - "yes"
people: {jo@example.com: "@jo", "max@example.com": no}
edges: {commit: on}
guard: {mode: off, max_age: 90, timeout: 1m30s, offline: block}
stale: {after: 2w, release: True, exempt: 017}
landing: {release: never}
"""


def test_a_newer_schema_has_keys_that_are_passed_over_with_a_warning(repo: Path) -> None:
    text = "schema: 2\nlease: {ttl: 5m, colour: red}\ncolours: [red]\ntasks:\n  fields: {tint: x}\n"
    write(repo, text)
    for _ in range(2):  # the second time as it is remembered
        settings = load(repo)
        assert settings.ttl == 300
        check_words(settings.warnings)
    write(repo, "schema: 2\n")
    assert load(repo).warnings == ()


def test_the_published_schema_is_that_of_the_table() -> None:
    published = (DOCS / "settings.schema.json").read_text(encoding="utf-8")
    assert published == written(settings_schema()), how_to_record("settings")
    validator = jsonschema.Draft202012Validator(settings_schema())
    whole, text = yaml.load(FULL, yaml.BaseLoader), settings_yaml()  # as the file is read: texts
    validator.validate(whole)
    validator.validate(yaml.load(text, yaml.BaseLoader))
    validator.validate(yaml.load(re.sub(r"(?m)^#(?=  |\w+:)", "", text), yaml.BaseLoader))
    for bad in ({"lease": {"colour": 1}}, {"guard": {"mode": "on"}}, {"lease": {"ttl": "soon"}}):
        assert not validator.is_valid(whole | bad)


def test_the_whole_schema(repo: Path) -> None:
    write(repo, FULL)
    found = load(repo)
    assert (found.remote, found.layer, found.ttl) == ("origin", "team", 1200)
    assert (found.ref_prefix, found.ttl_is_default) == ("refs/heads/gitlease", False)
    assert found.tasks.files == ("backlog/*.md", "notes/")
    assert (found.tasks.completed, found.tasks.required) == (("backlog/completed",), False)
    assert (found.tasks.fields["assigned"], found.tasks.fields["id"]) == ("assignee", "id")
    assert found.tasks.statuses == {
        "todo": ("To Do",),
        "in_progress": ("in_progress", "doing"),
        "done": ("Done", "yes"),
    }
    assert found.people == {"jo@example.com": "@jo", "max@example.com": "no"}
    assert found.edges_commit is True
    assert (found.guard_mode, found.guard_max_age, found.guard_timeout) == ("off", 90, 90)
    assert found.guard_offline == "block"
    assert (found.stale_after, found.stale_release) == (14 * 86_400, True)
    assert found.tasks.exempt == "017"
    assert found.landing_release == "never"
    sources = {entry.key: entry.source for entry in found.table()}
    assert sources["lease.ttl"] == f"{FILE}:2"
    assert sources["tasks.statuses"] == f"{FILE}:8"
    assert sources["people"] == f"{FILE}:13"


def test_files_that_say_nothing(repo: Path) -> None:
    odd = "\ufeffschema: 1", "tasks: {fields: {}, statuses: {todo: }}", "schema: 1\r\nlease:\r\n"
    for text in ("", "# nothing\n", "---\n...\n", "~", "{}", "schema:", "lease: {}", *odd):
        (repo / FILE).write_bytes(text.encode())
        assert load(repo).ttl_is_default


BAD_FILES = [
    # text, line, what the message says, what the hint says
    ("lese: {}", 1, "unknown key lese", "did you mean lease?"),
    ("lease:\n  ttl: 5m\n  tll: 5m", 3, "unknown key lease.tll", "lease.ttl"),
    ("lease: {max_age: 5m}", 1, "unknown key lease.max_age", "guard.max_age"),
    ("tasks:\n  fields:\n    assignee: a", 3, "unknown key tasks.fields.assignee", "assigned"),
    ("lease: 5m", 1, "lease must be a mapping, not a single value", ""),
    ("- lease", 1, "the file must be a mapping, not a list", ""),
    ("tasks:\n  files:\n    - a\n    - [b]", 4, "an entry of tasks.files must be a single", ""),
    ("tasks: {fields: {status: created}}", 1, "has created both for status and for created", ""),
    ("tasks: {statuses: {todo: [a], done: [A]}}", 1, "has A both for todo and for done", ""),
    ('people: {"j\\0": a}', 1, "a key of people has control characters", ""),
    (f"people: {{jo: {'x' * 300}}}", 1, "people.jo is longer than 254", ""),
    ("guard:\n  timeout: 0s", 2, "guard.timeout '0s' is not positive", ""),
    (f"schema: {'9' * 5000}", 1, "schema is a number like 1, not", ""),
    ("schema: 2\nlease: {ttl: often, colour: red}", 2, "lease.ttl", ""),
    ("schema: 1\nschema: 1", 2, "schema is here twice, first in line 1", ""),
    ("lease:\n  ttl: 1m\n  'ttl': 2m", 3, "ttl is here twice, first in line 2", ""),
    ("lease: &a {ttl: 5m}", 1, "anchors and tags are not allowed", ""),
    ("tasks: {files: [*md]}", 1, "aliases are not allowed", "in quotes"),
    ("people: {<<: {a: b}}", 1, "merge keys are not allowed", ""),
    # In fields that no version uses, or only a newer one, as well.
    ("schema: 2\nlater: {a: [&b c]}", 2, "anchors and tags are not allowed", ""),
    ("schema: 2\nlater: {a: !!str c}", 2, "anchors and tags are not allowed", ""),
    ("schema: 2\nlater: [*b]", 2, "aliases are not allowed", "in quotes"),
    ("schema: 2\nlater: {a: {<<: {b: c}}}", 2, "merge keys are not allowed", ""),
    ("schema: 2\nlater:\n  - a: 1\n    a: 2", 4, "a is here twice, first in line 3", ""),
    ("? [a]\n: b", 1, "a key must be a single word", ""),
    ("tasks: [[[[[[[[a]]]]]]]]", 1, "nested too deeply", ""),
    ("schema: 1\n---\nschema: 1", 2, "there is more than one YAML document", ""),
    ("schema: 1\nlease: {", 3, "this is not YAML", ""),
    ("people:\n  a: @jo", 2, "this is not YAML", "in quotes"),
    ("schema: 1\npeople: {a: \x07}", 2, "this is not YAML", ""),
]


@pytest.mark.default
@pytest.mark.parametrize(("text", "line", "message", "hint"), BAD_FILES)
def test_bad_file(text: str, line: int, message: str, hint: str) -> None:
    error = refused(text)
    assert error.message.startswith(f"{FILE}:{line}: ")
    assert message in error.message
    assert hint in "".join(error.hints)
    assert error.message.isprintable()
    assert "secret" not in error.message


def test_hostile_files_are_refused_at_once() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(1000))
    started = time.process_time()
    for text in (bomb, "[" * MAX_FILE, "{a: " * 50_000, "a: {<<: {<<: {}}}", "? " * 50_000):
        refused(text)
    assert time.process_time() - started < 5


def test_what_is_no_small_regular_file_is_refused(repo: Path) -> None:
    (repo / "lease.yaml").write_text("lease: {ttl: 1h}")
    file = repo / FILE
    makes: list[Callable[[], object]] = [
        lambda: file.write_text("#" * (MAX_FILE + 1)),
        file.mkdir,
        lambda: os.mkfifo(file),
        *(lambda x=x: file.symlink_to(x) for x in ("lease.yaml", "gone", FILE)),
    ]
    for make in makes:
        make()
        with raises(Invalid):
            load(repo)
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
    write(repo, "#" * MAX_FILE)
    assert load(repo).ttl_is_default
    assert "UTF-8" in refused("schema: 1".encode("utf-16")).message


def test_yaml_is_imported_only_when_the_file_exists(repo: Path) -> None:
    code = (
        "import sys; from gitlease.kernel.git.repository import discover;"
        "from gitlease.kernel.settings.schema import load_settings, resolve_remote;"
        "r = discover('.'); s = load_settings(r, environ={}, flags={}); resolve_remote(s, r);"
        "print(*sorted({'yaml', 'pygit2', 'difflib', 'socket', 'hashlib'} & set(sys.modules)))"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    run = [sys.executable, "-c", code]
    assert subprocess.check_output(run, cwd=repo, env=env, text=True) == "\n"
    write(repo, "schema: 1")
    assert subprocess.check_output(run, cwd=repo, env=env, text=True) == "yaml\n"
    (repo / ".git/gitlease").mkdir()
    assert subprocess.check_output(run, cwd=repo, env=env, text=True) == "yaml\n"
    assert subprocess.check_output(run, cwd=repo, env=env, text=True) == "\n"


# The remote


def location(
    repo: Path, flags: dict[str, str] | None = None, environ: dict[str, str] | None = None
) -> Location:
    found = discover(str(repo))
    settings = load_settings(found, environ=environ or {}, flags=flags or {})
    return resolve_remote(settings, found)


def add_remote(repo: Path, name: str, url: str | None = None) -> None:
    git(repo, "config", f"remote.{name}.url", url or f"https://example.com/{name}")


def test_the_remote_is_the_one_that_is_named_origin_or_the_only_one(repo: Path) -> None:
    assert location(repo) == Location(None, None, explicit=False), "none: the ledger is local"
    add_remote(repo, "up.stream")
    assert location(repo) == Location("up.stream", "https://example.com/up.stream", explicit=False)
    add_remote(repo, "team/fork")
    with raises(Invalid) as refused:
        location(repo)
    assert "lease.remote" in refused.value.hints[0]
    add_remote(repo, "origin")
    assert location(repo) == Location("origin", "https://example.com/origin", explicit=False)
    git(repo, "config", "lease.remote", "up.stream")
    assert location(repo).name == "up.stream"
    assert location(repo, {"remote": "team/fork"}).name == "team/fork"
    assert location(repo, {"remote": "origin"}).explicit
    assert not location(repo, environ={"GITLEASE_REMOTE": "origin"}).explicit
    for url in ("https://example.com/x", "git@host:x.git", "../up.git", ".", "a/b", "foo::x"):
        assert location(repo, {"remote": url}) == Location(None, url, explicit=True)


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_unknown_remote(repo: Path, source: str) -> None:
    add_remote(repo, "origin")
    add_remote(repo, "upstream")
    flags = {"remote": "nobody"} if source == "flag" else {}
    environ = {"GITLEASE_REMOTE": "nobody"} if source == "environment" else {}
    if source == "file":
        write(repo, "lease: {remote: nobody}")
    with raises(GitleaseError) as raised:
        location(repo, flags, environ)
    assert type(raised.value) is (UsageError if source == "flag" else Invalid)
    check_words(raised.value.hints)


@pytest.mark.parametrize("url", ["ext::sh -c x", "-x", "a\nb"])
def test_unsafe_url_of_a_remote(repo: Path, url: str) -> None:
    add_remote(repo, "origin", url)
    with raises(Invalid):
        location(repo)


def test_committed_remote_inside_the_repository(repo: Path) -> None:
    """A committed bare repository must not get its hooks run by the claims of others."""
    inside = str(repo / "evil.git")
    (repo / "link").symlink_to(repo)
    words = [".", "evil.git/", "./a/../evil.git", inside, f"file://{inside}", f"FILE://{inside}"]
    for word in (*words, "file://" + inside.replace("e", "%65"), "./.git", "link/x"):
        write(repo, f"schema: 1\nlease: {{remote: '{word}'}}")
        with pytest.raises(Invalid, match=rf"^{FILE}:2: lease.remote .* is inside this repository"):
            load(repo)
    for word in ("../up.git", "host:evil.git", "https://x/y", "/srv/x", "origin"):
        write(repo, f"lease: {{remote: '{word}'}}")
        assert load(repo).remote == word
    write(repo, "")
    git(repo, "config", "lease.remote", "./own.git")
    assert location(repo).url == "./own.git", "a person may ask for it"


def test_passwords_are_not_shown(repo: Path) -> None:
    settings = load(repo, {"remote": "https://jo:secret@example.com/x"})
    assert setting(settings, "lease.remote").value == "https://jo:***@example.com/x"
    assert settings.remote == "https://jo:secret@example.com/x"


# Writing


def found(repo: Path) -> Repository:
    return discover(str(repo))


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("lease.ttl", "1h", "lease.ttl"),
        ("lease.ref_prefix", "refs/x", "lease.refPrefix"),
        ("guard.mode", "warn", "lease.guardMode"),
        ("lease.guardMode", "off", "lease.guardMode"),
        ("lease.remote", "../x", "lease.remote"),
        ("lease.session", "-dash first", "lease.session"),
    ],
)
def test_set_and_unset(repo: Path, key: str, value: str, name: str) -> None:
    git(repo, "config", "--add", name, "old")
    git(repo, "config", "--add", name, "older")
    assert set_config(found(repo), key, value) == name
    assert git(repo, "config", "--local", "--get-all", name) == value
    load(repo)
    assert set_config(found(repo), key, "") == name
    assert set_config(found(repo), key, "") == name
    assert "lease." not in git(repo, "config", "--local", "--list")
    add_remote(repo, "upstream")
    set_config(found(repo), "lease.remote", "upstream")
    assert location(repo).name == "upstream"


@pytest.mark.parametrize(
    ("key", "value", "message", "hint"),
    [
        ("lease.ttl", "soon", "lease.ttl: invalid duration 'soon'", "write it like"),
        ("guard.mode", "no", "guard.mode is block, warn or off", ""),
        ("lease.remote", "nobody", "there is no remote nobody", "this clone has none"),
        ("lease.remote", "-x", "begins with -", ""),
        ("lease.session", "x" * 129, "longer than 128", ""),
        ("lease.tll", "1h", "lease.tll is not a setting", "did you mean lease.ttl?"),
        ("guard.timeout", "5s", "guard.timeout applies to everyone", f"edit {FILE}"),
        ("people", "x", "people applies to everyone", f"edit {FILE}"),
    ],
)
def test_set_refuses(repo: Path, key: str, value: str, message: str, hint: str) -> None:
    before = (repo / ".git" / "config").read_bytes()
    with pytest.raises(UsageError) as raised:
        set_config(found(repo), key, value)
    assert message in raised.value.message
    assert hint in "".join(raised.value.hints)
    assert (repo / ".git" / "config").read_bytes() == before


def test_set_in_a_linked_work_tree_is_for_the_clone(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repo, "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "x")
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    monkeypatch.chdir(tmp_path / "linked")
    monkeypatch.setenv("GIT_DIR", os.path.relpath(repo / ".git/worktrees/linked"))
    set_config(found(tmp_path / "linked"), "lease.ttl", "1h")
    assert git(repo, "config", "--local", "lease.ttl") == "1h"


# The file that init writes


def test_default_file_teaches_what_is_true(repo: Path) -> None:
    """With its samples uncommented it still loads, and all but the examples are the defaults."""
    default = load(repo).table()
    write(repo, settings_yaml())
    assert load(repo).table() == default
    samples = re.sub(r"(?m)^#(?! \S)", "", settings_yaml())
    before = values(repo)
    write(repo, samples)
    after = values(repo)
    different = {key for key in before if before[key] != after[key]}
    assert different == {"lease.remote", "tasks.required", "tasks.handles", "people"}
    assert (before["tasks.handles"], after["tasks.handles"]) == (None, False)


def values(repo: Path) -> dict[str, Any]:
    return {found.key: found.value for found in load(repo).table()}


def test_a_settings_file_is_parsed_again_only_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    real = parse_settings

    def counting(data: bytes) -> dict[str, Found]:
        parsed.append(data)
        return real(data)

    monkeypatch.setattr("gitlease.kernel.settings.text.parse_settings", counting)

    def said(text: str, folder: Path = tmp_path) -> dict[str, Found]:
        (tmp_path / FILE).write_text(text)
        return read_settings_file(str(tmp_path), folder=str(folder))

    first = said("lease: {ttl: 20m}\n")
    assert said("lease: {ttl: 20m}\n") == first == {"lease.ttl": Found(1_200, f"{FILE}:1")}
    assert len(parsed) == 1
    assert said("lease: {ttl: 30m}\n")["lease.ttl"].value == 1_800
    for odd in ("[]", '{"purpose": 1}', "{", '{"found": {"x": 3}}'):
        (tmp_path / "settings.json").write_text(odd, encoding="utf-8")
        assert said("lease: {ttl: 20m}\n") == first
    with pytest.raises(Invalid):
        said("lease: {tll: 20m}\n")
    assert said("", tmp_path / "nowhere") == {}


class _Core(yaml.SafeLoader):
    """YAML 1.2, as editors read it: ``yes``, ``off`` and ``1:30`` are texts."""


_Core.yaml_implicit_resolvers = {}
for _tag, _form, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Core.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_form})$"), _first)

GOOD = """
lfs: {lock_ttl: 2d, objects: "https://[::1]:8080/team/art.git/info/lfs"} | lfs: {lock_ttl: }
schema: 1 | schema: "1" | schema: 12 | schema: | schema: null | schema: "" | lease: ~ | lease: {}
lease: {ttl: } | lease: {ttl: NULL} | lease: {ttl: ""} | lease: {ttl: 90} | lease: {ttl: "90.0"}
lease: {ttl: 1h30m} | lease: {ttl: 1H30M} | lease: {ttl: 0.05m} | lease: {ttl: " 15m "}
lease: {ttl: 1w2d3h4m5s} | lease: {ttl: 315360000} | lease: {remote: 5, layer: 5}
lease: {remote: true, layer: true} | lease: {remote: "ssh://git@example.com/x.git"}
lease: {layer: Team-1_b} | lease: {ref_prefix: refs/heads/gitlease} | tasks: {files: []}
tasks: {files: ""} | tasks: {files: [tasks/*.md, notes/, 12]} | tasks: {required: tRuE}
tasks: {required: "yes"} | tasks: {required: Off} | tasks: {required: null}
tasks: {fields: } | tasks: {fields: {id: nr, title: null}} | tasks: {fields: {id: {file: stem}}}
tasks: {statuses: {todo: [To Do], done: }} | tasks: {statuses: {todo: [no, 12]}}
people: {jo@example.com: "@jo"} | people: {jo@example.com: } | edges: {commit: ON}
guard: {mode: off} | guard: {mode: ""} | stale: {exempt: true, after: 7d, release: False}
schema: 2, colours: [red] | schema: 2, lease: {colour: red, ttl: 5m}
schema: 2, tasks: {fields: {tint: x}}
"""
BAD = """
schema: 0 | schema: -1 | schema: one | schema: "0" | schema: true | schema: [1] | schema: 1234567890
lease: 5 | lease: [] | lease: {ttl: 0} | lease: {ttl: -5} | lease: {ttl: 1.5} | lease: {ttl: "1.5"}
lease: {ttl: 0.01m} | lease: {ttl: 30m1h} | lease: {ttl: 1h 30m} | lease: {ttl: 1m1m}
lease: {ttl: soon} | lease: {ttl: "  "} | lease: {ttl: true} | lease: {ttl: [5m]}
lease: {ttl: 315360001} | lease: {remote: "-x"} | lease: {remote: -5} | lease: {remote: "ext::sh"}
lease: {remote: "a\\nb"} | lease: {layer: a/b} | lease: {layer: Local} | lease: {layer: 1.5}
lease: {ref_prefix: heads/x} | lease: {ref_prefix: refs/heads} | lease: {ref_prefix: refs/a..b}
lease: {ref_prefix: 5} | tasks: {files: tasks/*.md} | tasks: {files: [null]} | tasks: {files: [""]}
tasks: {files: ["!x"]} | tasks: {files: [../x]} | tasks: {files: [[x]]} | tasks: {required: 1}
tasks: {required: y} | tasks: {fields: {tint: x}} | tasks: {fields: {id: [x]}}
tasks: {fields: {id: {file: name}}} | tasks: {fields: {title: {file: stem}}}
tasks: {statuses: {todo: []}} | tasks: {statuses: {todo: [~]}} | tasks: {statuses: {todo: x}}
people: {"": x} | people: [x] | edges: {commit: 5} | guard: {mode: on} | guard: {mode: Block}
guard: {mode: false} | stale: {exempt: " "} | stale: {exempt: "a\\tb"} | lfs: {lock_ttl: soon}
lfs: {objects: art.git/info/lfs} | lfs: {objects: "https://jo:secret@host/art.git"}
lfs: {objects: "https://host/art?x"} | lfs: {objects: "https://host/a b"}
colours: [red] | lease: {colour: red} | schema: 1, colours: [red]
schema: 2, lease: {ttl: soon} | schema: 2, guard: {mode: on}
"""
# What spans several values, or is a sum: the reader alone says so.
READER_ALONE = """
lease: {ref_prefix: refs/heads/feature}
lease: {ttl: 3651d}
tasks: {fields: {id: x, status: x}}
tasks: {statuses: {todo: [x], done: [x]}}
"""
VALIDATOR = jsonschema.Draft202012Validator(settings_schema())


def files(text: str) -> list[str]:
    """Files of one line each."""
    lines = text.strip().replace("\n", " | ").split(" | ")
    return [f"{{{x}}}" if re.match(r"schema: \d+, ", x) else x for x in lines]


def read(text: str) -> bool:
    """Whether the reader takes a file."""
    try:
        parse_settings(text.encode())
    except Invalid:
        return False
    return True


def shown(text: str) -> bool:
    """Whether an editor finds nothing wrong with it."""
    value: Any = yaml.load(text, _Core)
    return VALIDATOR.is_valid(value)


@pytest.mark.parametrize(
    ("table", "reader", "editor"),
    [(GOOD, True, True), (BAD, False, False), (READER_ALONE, False, True)],
    ids=["good", "bad", "reader alone"],
)
def test_the_reader_and_an_editor_say_the_same(table: str, reader: bool, editor: bool) -> None:
    nothing = ["", "\n", "# nothing\n"] if table is GOOD else []
    for text in (*files(table), *nothing):
        assert (read(text), shown(text)) == (reader, editor), text
