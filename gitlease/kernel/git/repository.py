"""Finds the user's repository and its settings with two git processes, and asks git about it.

Nothing is changed there, and no connection is opened. Why git, or a server, did not do what it was
asked is told in its own words and without secrets.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from gitlease.kernel.git.files import notes_of, share_clone
from gitlease.kernel.git.run import GitResult, run_git
from gitlease.kernel.rules.errors import Invalid, NotARepository
from gitlease.kernel.rules.frozen import dataclass, field

TIMEOUT = 10.0
SHARED = "core.sharedrepository"
TRUE = frozenset({"true", "yes", "on", "1"})  # as git reads a setting

# --show-toplevel comes last: where there is no work tree git prints the others, then fails.
_QUESTIONS = (
    "rev-parse",
    "--path-format=absolute",
    "--show-object-format",
    "--is-bare-repository",
    "--is-inside-git-dir",
    "--git-common-dir",
    "--git-dir",
    "--show-prefix",
    "--show-toplevel",
)


@dataclass(frozen=True)
class ConfigEntry:
    """One value of git's configuration and where it was set, for messages."""

    key: str
    value: str
    scope: str  # system, global, local, worktree, command
    origin: str  # a file's name, or "" for the command line


class GitConfig:
    """git's effective configuration: every value of every key, the last one the strongest.

    Sections and names ignore letter case, subsections do not. ``read_at`` is in nanoseconds since
    the epoch.
    """

    __slots__ = ("_values", "entries", "read_at")

    def __init__(self, entries: tuple[ConfigEntry, ...] = (), read_at: int = 0) -> None:
        self.entries, self.read_at = entries, read_at
        self._values: dict[str, list[ConfigEntry]] = {}
        for entry in entries:
            self._values.setdefault(entry.key, []).append(entry)

    def get(self, key: str) -> str | None:
        """The effective value, None if there is none. A key without ``=`` reads ``true``."""
        entry = self.entry(key)
        return None if entry is None else entry.value

    def get_all(self, key: str) -> list[str]:
        """Every value, in git's order."""
        return [entry.value for entry in self._values.get(_canonical(key), ())]

    def entry(self, key: str) -> ConfigEntry | None:
        """Like ``get``, with its place."""
        entries = self._values.get(_canonical(key))
        return entries[-1] if entries else None

    def section(self, name: str) -> list[ConfigEntry]:
        """Everything of a section, its subsections included, in git's order."""
        start = name.lower() + "."
        return [entry for entry in self.entries if entry.key.startswith(start)]


def is_on(value: str | None) -> bool:
    """Return whether git reads the value of a setting as true."""
    return (value or "").lower() in TRUE


def _canonical(key: str) -> str:
    section, _, rest = key.partition(".")
    subsection, dot, name = rest.rpartition(".")
    return f"{section.lower()}.{subsection}{dot}{name.lower()}"


@dataclass(frozen=True, kw_only=True)
class Ways:
    """How git reaches a remote: ``word`` is a URL that leads fetches and pushes alike to where git
    pushes; ``fetch`` is the URL that others read, as configured.

    ``reads`` and ``writes`` are the effective URLs of both, rewritten by git's settings. ``apart``
    is the URL of another repository to which git would push, if there is one.
    """

    word: str
    fetch: str
    reads: str
    writes: tuple[str, ...]
    apart: str

    @property
    def is_one(self) -> bool:
        """Return whether what git pushes there is what others fetch."""
        return len(self.writes) == 1 and not self.apart

    @property
    def ledger(self) -> str:
        """The URL of the ledger: where git pushes, if that is where others fetch."""
        return self.word if self.is_one else self.fetch


@dataclass(frozen=True)
class Repository:
    """The user's repository, and the folder in it in which the command was started.

    All paths but ``folder`` are absolute. ``common_dir`` is shared by all work trees of a clone.
    ``folder`` is relative to ``toplevel``, ``""`` at the root; a bare repository has no
    ``toplevel``. ``worktree`` is the name of a linked work tree, None in the main one.
    """

    common_dir: str
    git_dir: str
    toplevel: str | None
    folder: str
    worktree: str | None
    object_format: str
    config: GitConfig = field(repr=False, compare=False)

    @property
    def clone_id(self) -> str:
        """Eight hex digits that name this clone on this machine, the same in all work trees."""
        return _digest(f"{short_host() or ''}\0{os.path.realpath(self.common_dir)}")[:8]

    @property
    def linked_trees(self) -> str | None:
        """The folder for linked work trees, beside this one; None without a work tree."""
        return None if self.toplevel is None else f"{self.toplevel}.worktrees"

    def branch(self) -> str | None:
        """The current branch's short name; None when HEAD is detached."""
        head = os.path.join(self.git_dir, "HEAD")
        try:
            if os.path.islink(head):  # HEAD as git kept it long ago
                name = os.readlink(head)
            else:
                with open(head, encoding="utf-8", errors="replace") as file:
                    kind, _, name = file.read(4096).partition(":")
                if kind != "ref":
                    return None
        except OSError:
            return None
        if name.strip() == "refs/heads/.invalid":  # HEAD of a reftable repository
            words = (f"--git-dir={self.git_dir}", "symbolic-ref", "-q", "HEAD")
            name = run_git(words, cwd=self.git_dir, timeout=TIMEOUT).out.decode("utf-8", "replace")
        return name.strip().removeprefix("refs/heads/") or None

    def shallow(self) -> frozenset[str]:
        """The commits whose parents this clone was not given."""
        return frozenset(words_in(os.path.join(self.common_dir, "shallow")))

    def merged_heads(self, limit: int) -> list[str]:
        """The commits that a merge which is under way brings; git's file is read to a limit."""
        return words_in(os.path.join(self.git_dir, "MERGE_HEAD"), limit)

    def remote_names(self) -> tuple[str, ...]:
        """The remotes that have a URL, in the order of git's configuration."""
        names = dict.fromkeys(
            entry.key.removeprefix("remote.").rpartition(".")[0]
            for entry in self.config.section("remote")
            if entry.key.endswith((".url", ".pushurl"))
        )
        return tuple(name for name in names if name and self.remote_url(name) is not None)

    def remote_url(self, name: str) -> str | None:
        """The first URL for pushes, as configured."""
        return next(iter(self.push_urls(name)), None)

    def push_urls(self, name: str) -> list[str]:
        """The URLs for pushes, as configured: each ``pushurl``, else ``url``."""
        return self._urls(name, "pushurl") or self._urls(name, "url")

    def _urls(self, name: str, key: str) -> list[str]:
        urls: list[str] = []
        for url in self.config.get_all(f"remote.{name}.{key}"):
            urls = [*urls, url] if url else []  # an empty value clears those before it
        return urls

    def ways_to(self, place: str) -> Ways:
        """The URLs at which git reads and writes a remote, by its name or its URL."""
        named = place in self.remote_names()
        urls = self._urls(place, "url") if named else [place]
        push_urls = self._urls(place, "pushurl") if named else []
        urls = urls or push_urls
        # git rewrites a URL for pushes only where the remote has no URL of its own for them.
        for_pushes = [self._rewritten(x, "insteadof") for x in push_urls]
        for_pushes = for_pushes or [
            x for url in urls if (x := self._rewritten(url, "pushinsteadof", usual=""))
        ]
        for_pushes = for_pushes or [self._rewritten(url, "insteadof") for url in urls]
        writes = tuple(dict.fromkeys(for_pushes))
        word = (push_urls or urls)[0]
        if self._leads_to(word) != {writes[0]}:
            word = writes[0]
        reads = self._rewritten(urls[0], "insteadof")
        # git's settings may rewrite the word once more, or only for fetches.
        ends = (*writes, *sorted(self._leads_to(word)))
        apart = next((x for x in ends if not self.lead_to_one(reads, x)), "")
        return Ways(word=word, fetch=urls[0], reads=reads, writes=writes, apart=apart)

    def lead_to_one(self, one: str, other: str) -> bool:
        """Return whether two effective URLs lead to the same repository."""
        if one == other:
            return True
        from gitlease.kernel.git import addresses  # few clones have two URLs

        folder = self.toplevel or self.git_dir
        ssh = self.config.get("core.sshcommand")
        return addresses.lead_to_one(one, other, folder=folder, ssh_command=ssh)

    def _leads_to(self, url: str) -> set[str]:
        """The URLs at which git fetches and pushes for a URL."""
        fetches = self._rewritten(url, "insteadof")
        return {fetches, self._rewritten(url, "pushinsteadof", usual="") or fetches}

    def _rewritten(self, url: str, key: str, *, usual: str | None = None) -> str:
        """Return a URL as git rewrites it, by the longest rule; ``usual``, or itself, by none."""
        end = f".{key}"
        rules = [
            (x.value, x.key.removeprefix("url.").removesuffix(end))
            for x in self.config.section("url")
            if x.key.endswith(end) and url.startswith(x.value)
        ]
        if not rules:
            return url if usual is None else usual
        longest = max(len(old) for old, _ in rules)
        old, new = next(rule for rule in rules if len(rule[0]) == longest)
        return new + url.removeprefix(old)


def words_in(file: str, limit: int = -1) -> list[str]:
    """The words in one of git's own files, none if it is not there."""
    try:
        with open(file, "rb") as opened:
            return opened.read(limit).decode("ascii", "replace").split()
    except OSError:
        return []


def _digest(text: str) -> str:
    from hashlib import sha256  # OpenSSL, for which hooks have no time

    return sha256(os.fsencode(text)).hexdigest()


def short_host() -> str | None:
    """This machine's name up to the first dot."""
    name = os.uname().nodename.partition(".")[0]
    return name if name and name.isprintable() else None


def discover(start: str) -> Repository:
    """Find the repository around ``start``, as git itself would (by ``GIT_DIR``, too).

    Raises NotARepository if there is none, Invalid if git refuses to work with it.
    """
    start = start or "."
    if not os.path.isdir(start):
        raise NotARepository(f"there is no folder {start!r}")
    asked = run_git(_QUESTIONS, cwd=start, timeout=TIMEOUT, repository=True)
    lines = os.fsdecode(asked.out).split("\n")[:-1]
    # A bare repository has neither prefix nor top level, and fails by the question for the latter.
    no_work_tree = asked.code != 0 and len(lines) == len(_QUESTIONS) - 3
    if asked.timed_out or (asked.code != 0 and not no_work_tree):
        raise _refusal(asked, start)
    if len(lines) != len(_QUESTIONS) - 3 + (not no_work_tree):
        raise Invalid("git's answer about this repository cannot be read: line breaks in its path?")
    object_format, bare, inside, common_dir, git_dir, prefix = lines[:6]
    if object_format not in ("sha1", "sha256"):
        raise Invalid("this git is too old", hints=("gitlease needs git 2.31 or newer",))
    toplevel = None if no_work_tree else lines[6]
    if toplevel == git_dir:  # a hook of the server, with GIT_DIR=.
        toplevel, prefix = None, ""
    elif bare == "false" and inside == "true":
        if toplevel is None and os.path.basename(git_dir) == ".git":
            toplevel = os.path.dirname(git_dir)
        raise NotARepository(
            f"this folder is inside git's own {git_dir}, not in a work tree",
            hints=(f"cd {toplevel}",) if toplevel else (),
        )
    parent, name = os.path.split(git_dir)
    config = _read_config(start)
    worktree = name if parent == os.path.join(common_dir, "worktrees") else None
    if toplevel is not None and config.entry("core.worktree") is not None:
        _check_core_worktree(config, start, toplevel, git_dir if worktree else None)
    # As git, which takes the setting from the clone's own file alone.
    shared = [x.value for x in config.entries if x.key == SHARED and x.scope == "local"]
    share_clone(common_dir, shared[-1] if shared else None)
    return Repository(
        common_dir=common_dir,
        git_dir=git_dir,
        toplevel=toplevel,
        folder="" if toplevel is None else prefix.rstrip("/"),
        worktree=worktree,
        object_format=object_format,
        config=config,
    )


def _check_core_worktree(config: GitConfig, start: str, toplevel: str, linked: str | None) -> None:
    """Refuse a setting that leads to a folder that is not there, or to another work tree.

    ``linked`` is the private folder of a linked work tree, which says where that is.
    """
    entry = config.entry("core.worktree")
    # With the variable whoever runs git says so themselves, for this command.
    if entry is None or os.environ.get("GIT_WORK_TREE"):
        return
    import shlex  # for a refusal alone

    file = os.path.realpath(os.path.join(start, entry.origin)) if entry.origin else ""
    unset = f"to unset it: git config --file {shlex.quote(file)} --unset-all core.worktree"
    if not file:
        unset = "a setting given to this command (-c, GIT_CONFIG_PARAMETERS) names it: leave it out"
    if not os.path.isdir(toplevel):
        message = f"core.worktree is {toplevel}, and there is no such folder"
        raise Invalid(message, hints=(unset,))
    # git itself passes over the clone's shared setting in a linked work tree.
    counts = linked is not None and entry.scope in ("worktree", "command")
    own = _folder_of_linked(linked) if linked is not None and counts else ""
    # Task files of another work tree would be read and written, and its changes committed here.
    if own and os.path.realpath(own) != os.path.realpath(toplevel):
        raise Invalid(
            f"core.worktree is {toplevel}, but this linked work tree is {own}",
            hints=(unset, "if the work tree was moved: git worktree repair PATH"),
        )


def _folder_of_linked(git_dir: str) -> str:
    """The folder of a linked work tree, as its private folder names it; ``""`` if it does not."""
    try:
        with open(os.path.join(git_dir, "gitdir"), encoding="utf-8", errors="surrogateescape") as x:
            named = x.read(8192).rstrip("\r\n")
    except OSError:
        return ""
    return os.path.dirname(os.path.join(git_dir, named)) if named else ""


def _read_config(start: str) -> GitConfig:
    words = ("config", "--list", "-z", "--show-scope", "--show-origin")
    # Before git reads: a setting that changes meanwhile makes what is made of these old.
    read_at = time.time_ns()
    asked = run_git(words, cwd=start, timeout=TIMEOUT, repository=True)
    if asked.code != 0 or asked.timed_out:
        raise _refusal(asked, start)
    fields = asked.out.decode("utf-8", "surrogateescape").split("\0")
    entries = []
    for scope, origin, setting in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        key, equals, value = setting.partition("\n")
        kind, _, place = origin.partition(":")
        origin = "" if kind == "command line" else place
        entries.append(ConfigEntry(key, value if equals else "true", scope, origin))
    return GitConfig(tuple(entries), read_at)


def _git_dir_that_is_gone(start: str) -> str | None:
    # The nearest .git file may lead nowhere: git 2.54 and later do not say so.
    folder = os.path.realpath(start)
    while not os.path.isfile(file := os.path.join(folder, ".git")):
        if folder == (folder := os.path.dirname(folder)):
            return None
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            kind, _, named = opened.read(8192).partition("gitdir: ")
    except OSError:
        return None
    git_dir = os.path.join(folder, named.rstrip("\r\n"))
    return None if kind or not named or os.path.lexists(f"{git_dir}/HEAD") else git_dir


def _nowhere(named: str) -> NotARepository:
    return NotARepository(
        f"there is no git repository in {named}",
        hints=("GIT_DIR, or the .git file here, names it: check it",),
    )


def _refusal(asked: GitResult, start: str) -> NotARepository | Invalid:
    if asked.timed_out:
        return Invalid(f"git did not answer within {TIMEOUT:g} s about {start!r}")
    try:
        os.getcwd()
    except OSError:
        hint = "cd into a folder that is there"
        return NotARepository("the current folder does not exist any more", hints=(hint,))
    if not os.environ.get("GIT_DIR") and (named := _git_dir_that_is_gone(start)) is not None:
        return _nowhere(named)
    lines = [line.strip() for line in asked.err.splitlines() if line.strip()]
    first, *more = [line.removeprefix("fatal: ") for line in lines] or ["it printed nothing"]
    if first.startswith("not a git repository: "):
        return _nowhere(first.removeprefix("not a git repository: ").strip("'"))
    if first.startswith("not a git repository"):
        hint = "cd into a repository, or make one: git init"
        return NotARepository("this is not a git repository", hints=(hint, *more))
    if "dubious ownership" in first:
        command = [line for line in more if line.startswith("git config ")]
        return Invalid(f"git refuses this repository: {first}", hints=tuple(command))
    return Invalid(f"git cannot read this repository: {first}", hints=tuple(more))


# --- questions --------------------------------------------------------------------------------
# And why git, or a server, did not do what it was asked, in its own words and without secrets.

_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
AT_LENGTH = {"GIT_FLUSH": "0"}  # a log would be written, and read, commit by commit
# Commits as they are: git would re-encode ids and addresses, too, from whatever a header claims.
_AS_WRITTEN = ("-c", "i18n.logOutputEncoding=")
# Pathspecs as they are written, whatever the user's environment says.
PATHS = {f"GIT_{kind}_PATHSPECS": "0" for kind in ("LITERAL", "GLOB", "NOGLOB", "ICASE")}
# A partial clone would fetch what a question touches, from inside of a hook or while offline.
OFFLINE = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}

# What git adds to every failure, and what tells nothing beside the rest.
_EMPTY_WORDS = (
    "hint:",
    "error: failed to push",
    "To ",
    "fatal: Could not read from remote repository",
    "Please make sure you have the correct access rights",
    "and the repository exists",
)
_SECRET = r"(?i)([a-z][a-z0-9+.-]*://)[^\s'\"]*@"
_QUERY = r"(?i)([a-z][a-z0-9+.-]*://[^\s'\"?]*)\?[^\s'\"]*"


def is_id(text: str) -> bool:
    """Return whether a text is the full id of an object."""
    return _ID.fullmatch(text) is not None


def ask(
    repository: Repository,
    *words: str,
    env: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    source: str | None = None,
    on_out: Callable[[bytes], None] | None = None,
) -> GitResult:
    """Ask git about the user's repository; a hook's own index and objects hold.

    ``source`` is a file that git reads as its standard input. ``on_out`` gets the answer as it
    comes; none of it is kept then.
    """
    where = [f"--git-dir={repository.git_dir}"]
    if repository.toplevel is not None:
        where.append(f"--work-tree={repository.toplevel}")
    return run_git(
        # A daemon that watches files is for its user to start.
        # Ids must mean what everybody's clone means by them: replaced objects are one user's view.
        ("--no-replace-objects", "-c", "core.fsmonitor=false", *_AS_WRITTEN, *where, *words),
        cwd=repository.toplevel or repository.git_dir,
        timeout=timeout,
        env={**OFFLINE, **AT_LENGTH, **(env or {})},
        repository=True,
        source=source,
        on_out=on_out,
    )


def ask_line(repository: Repository, *words: str) -> str:
    """Git's answer of one line, ``""`` where it says that there is none. Invalid otherwise."""
    result = ask(repository, *words)
    if result.code not in (0, 1) or result.timed_out:
        raise result.failure(f"git {words[0]} does not answer")
    return os.fsdecode(result.out).strip() if result.code == 0 else ""


@contextmanager
def lines_as_input(lines: Iterable[str]) -> Iterator[str]:
    """A file that git reads as its standard input."""
    from tempfile import NamedTemporaryFile

    # A file, not a pipe: who writes while git answers may wait for git, which waits for them.
    with NamedTemporaryFile("wb", prefix="gitlease-") as file:
        file.write(os.fsencode("".join(f"{line}\n" for line in lines)))
        file.flush()
        yield file.name


def as_entry(folder: str) -> str:
    """A folder for a list of them, in quotes where its name would be taken for several."""
    if os.pathsep not in folder and not folder.startswith('"'):
        return folder
    return '"' + folder.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Pieces:
    """Cuts an answer that comes bit by bit at a mark, which ends each piece; ``rest`` has none."""

    def __init__(self, mark: bytes, take: Callable[[bytes], None]) -> None:
        self._mark, self._take = mark, take
        self._parts = list[bytes]()  # joined once their mark is there: else each bit copies all
        self._end = b""  # in which a mark may have begun

    @property
    def rest(self) -> bytes:
        return b"".join(self._parts)

    def more(self, data: bytes) -> None:
        new = self._end + data
        self._end = new[len(new) - len(self._mark) + 1 :] if len(new) >= len(self._mark) else new
        self._parts.append(data)
        if self._mark not in new:
            return
        *pieces, rest = self.rest.split(self._mark)
        # What has been cut off must not be found again.
        self._parts, self._end = [rest], rest[max(0, len(rest) - len(self._mark) + 1) :]
        for piece in pieces:
            self._take(piece)


# --- why --------------------------------------------------------------------------------------


def without_secrets(text: str) -> str:
    """The text without user names, passwords, tokens and queries in URLs."""
    if "://" not in text:
        return text  # a path, as most texts have none
    return re.sub(_QUERY, r"\1", re.sub(_SECRET, r"\1", text))


def detail_of(printed: Sequence[str], result: GitResult, timeout: float) -> str:
    """The most telling line that git or the server said, without secrets."""
    if result.timed_out:
        return f"no answer within {timeout:g}s"
    lines = [without_secrets(line.strip()) for line in printed if line.strip()]
    useful = [x for x in lines if not x.startswith(_EMPTY_WORDS)]
    chosen = next((x for x in useful if x.startswith(("fatal:", "remote:", "!"))), None)
    rejected = next((x for x in useful if x.startswith("[")), None)
    text = " ".join(x for x in (rejected, chosen) if x) or (useful[0] if useful else "")
    text = text.removeprefix("fatal: ") or f"git ended with status {result.code}"
    return "".join(c for c in text if c.isprintable())[:300]


# --- linked work trees -------------------------------------------------------------------------

CHECKOUT = 600.0  # seconds for the files of a work tree to be written

_UNFIT = r"[^A-Za-z0-9._-]+|\.\.+|\.lock$|^[.-]|[.]$"


def fit_name(text: str) -> str:
    """A task's name as a part of a branch and of a path: no two have the same.

    What had to be changed ends with a digest of the name, since other names may come to that too.
    """
    fit = re.sub(_UNFIT, "-", text).strip("-") or "task"
    return fit if fit == text else f"{fit}-{_digest(text)[:8]}"


# --- default branches -------------------------------------------------------------------------

BRANCHES = "main branches"  # a kind of notes: what remotes answered
HEADS, USUAL = "refs/heads/", ("main", "master")
SECONDS = 5.0  # for a remote to list its branches
ASK_EVERY = 3_600  # seconds between two questions for a remote's default branch


def branch_noted(repository: Repository, name: str) -> str:
    """The default branch of a remote as it answered itself; ``""`` if it was not asked."""
    return str(notes_of(repository.common_dir).get(BRANCHES, remote_key(repository, name)) or "")


def remote_key(repository: Repository, name: str) -> str:
    """The key of a remote in notes: another repository may get its name."""
    return f"{name} {without_secrets(repository.remote_url(name) or '')}"


def default_branches(repository: Repository, remotes: Iterable[str]) -> list[str]:
    """The refs that may be the default branches of remotes: as git or a remote named it, or usual.

    None of them need exist.
    """
    return [
        f"refs/remotes/{name}/{branch}"
        for name in remotes
        for branch in ("HEAD", branch_noted(repository, name), *USUAL)
        if branch
    ]


def listed_refs(repository: Repository, places: Sequence[str]) -> list[list[str]]:
    """The id, the name and the symbolic target of each ref below some places."""
    if not places:
        return []
    result = ask(repository, "for-each-ref", "--format=%(objectname) %(refname) %(symref)", *places)
    return [line.split(" ") for line in os.fsdecode(result.out).splitlines()]


MAX_PACKED = 4 * 1024 * 1024  # bytes of packed refs that are sooner read than git is started


def _few_refs(repository: Repository, refs: Sequence[str]) -> list[list[str]]:
    """``listed_refs`` of some full names, without a process where files have them."""
    found = list[list[str]]()
    if repository.config.get("extensions.refstorage") not in (None, "files"):
        return listed_refs(repository, refs)
    packed = b""
    packed_refs = os.path.join(repository.common_dir, "packed-refs")
    with suppress(OSError), open(packed_refs, "rb") as file:
        packed = file.read(MAX_PACKED + 1)
    if len(packed) > MAX_PACKED:
        return listed_refs(repository, refs)

    def loose(ref: str) -> str:
        return " ".join(words_in(os.path.join(repository.common_dir, ref), 4096))

    for ref in refs:
        value, symref = loose(ref), ""
        if value.startswith("ref: "):
            symref = value.removeprefix("ref: ")
            if not symref.startswith("refs/") or ".." in symref:
                continue
            value = loose(symref)
        if not is_id(value):
            named = re.escape(os.fsencode(symref or ref))
            line = re.search(rb"(?m)^([0-9a-f]{40,64}) " + named + rb"$", packed)
            value = "" if line is None else line[1].decode()
        if is_id(value):
            found.append([value, ref, symref])
    return found


def ask_remote(repository: Repository, *words: str, seconds: float) -> GitResult:
    """Ask git something that asks a remote; it asks nobody for a password."""
    words = (f"--git-dir={repository.git_dir}", *words)
    folder, env = repository.toplevel or repository.git_dir, {"GIT_TERMINAL_PROMPT": "0"}
    return run_git(words, cwd=folder, timeout=seconds, env=env, repository=True)


def commit_of(repository: Repository, name: str) -> str:
    """The full id of the commit that a ref or an id names; ``""`` if it is not here."""
    result = ask(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^0")
    return os.fsdecode(result.out).strip() if result.code == 0 else ""


def main_branch(
    repository: Repository, names: Sequence[str], *, now: float | None = None
) -> str | None:
    """The main branch of the first of these remotes that has one here, by its full name here.

    That is the remote's default branch as git knows it or the remote answered, else one with a
    usual name, else the only branch: a remote that was added by hand has no default branch here.
    Given the time ``now``, remotes are asked where none is known, once an hour at most.
    """
    each = (main_of(repository, name) for name in names)
    known = next((ref for ref, _ in filter(None, each)), None)
    if known or now is None:
        return known
    for name in names:
        notes, key = notes_of(repository.common_dir), remote_key(repository, name)
        # Noted before the answer: a remote that gives none is not asked again for an hour either.
        if notes.is_due(BRANCHES, key, every=ASK_EVERY, now=now):
            words = ("ls-remote", "--quiet", "--symref", "--", name, "HEAD")
            result = ask_remote(repository, *words, seconds=SECONDS)
            if symref := re.match(rb"ref: refs/heads/([^\t\n]+)\tHEAD\n", result.out):
                notes.put(BRANCHES, key, os.fsdecode(symref[1]), at=now)
    return main_branch(repository, names)


def main_of(
    repository: Repository, name: str, *, likely_only: bool = True
) -> tuple[str, str] | None:
    """The main branch of a remote by its full name here, and its commit.

    ``likely_only``: the only branch that was fetched counts, as it likely is that one.
    """
    place, noted = f"refs/remotes/{name}/", branch_noted(repository, name)
    configured = repository.config.get("init.defaultBranch")
    # Of a clone of some branches, a usual name does not say that it is the default one.
    usual = (*USUAL, configured or "") if not _is_narrowed(repository, name) else ()
    # What the remote answered comes first: git wrote its HEAD when the clone was made.
    refs = [f"{place}{branch}" for branch in (noted, "HEAD", *usual) if branch]
    listed = _few_refs(repository, refs)
    by_ref = {ref: (symref or ref, oid) for oid, ref, symref in listed}
    # A default branch that is not tracked here is none of those with a usual name.
    if noted:
        return by_ref.get(refs[0])
    named = next((by_ref[x] for x in refs if x in by_ref), None)
    if named is None and usual and likely_only:
        every = [(ref, oid) for oid, ref, symref in listed_refs(repository, [place]) if not symref]
        named = every[0] if len(every) == 1 else None
    return named


def _is_narrowed(repository: Repository, name: str) -> bool:
    """Return whether fetches bring some of a remote's branches alone, as ``--single-branch``."""
    specs = repository.config.get_all(f"remote.{name}.fetch")
    return bool(specs) and not any(x.lstrip("+").startswith("refs/heads/*:") for x in specs)
