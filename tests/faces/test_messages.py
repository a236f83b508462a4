"""What people read, word for word, under a clock that stands still."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from faces.fake import make_desks, words
from support.snapshots import check_words
from support.tasks import task

from gitlease.core import AnotherLedger, Denied, Rollback, Unavailable
from gitlease.faces.cli import app
from gitlease.git import COMMIT
from gitlease.store import lease_file, read_commit, write_lease, write_tree


def test_the_hints_of_a_claim_do_not_repeat_many_names() -> None:
    ada, _ = make_desks()
    names = [f"F{n}" for n in range(100, 106)]
    assert ada.ok("claim", *names[:5]).err.count(" ".join(names[:5])) == 2
    ran = ada.ok("claim", *names)
    check_words(ran.err)
    assert ada.ok("renew", "--all", "--json").json["status"] == "renewed"


def test_a_claim_shows_the_id_of_its_lease_on_request() -> None:
    ada, _ = make_desks()
    ran = ada.ok("claim", "F001", "-v")
    (lease,) = ada.ok("list", "--json").json["leases"]
    assert ran.out.endswith(f" {lease['lease_id']}\n")


def test_a_refusal_names_a_layer_that_is_not_the_usual_one() -> None:
    ada, bob = make_desks()
    ada.ok("claim", "F001", "--layer", "nightly")
    where = "F001 is held by ada@example.com (layer nightly, on laptop"
    assert bob.run("claim", "F001", "--layer", "nightly").err.startswith(where)


def test_a_refusal_names_holder_session_place_reason_and_time() -> None:
    ada, bob = make_desks()
    ada.ok("claim", "F001", "--session", "build-7", "--reason", "rate limits")
    bob.clock.advance(288)
    ran = bob.run("claim", "F001")
    check_words(ran.err)


def test_the_command_of_a_refusal_is_the_same_claim_waiting() -> None:
    ada, bob = make_desks()
    ada.ok("claim", "src/auth/", "--scope", "login")
    asked = ("src/*/x.py", "--scope", "a b", "--ttl", "1h", "--path", "*.md", "--path", "lib/")
    ran = bob.run("-C", "sub dir", "--layer", "global", "claim", *asked, "--json")
    assert ran.json["error"]["next"] == [
        "gitlease claim 'src/*/x.py' --wait 16m --path '*.md' --path path:lib --scope 'a b' "
        "--ttl 1h -C 'sub dir' --layer global",
    ]
    check_words(ran.err)


def test_resources_in_hints_mean_the_same_in_a_folder_below() -> None:
    ada, _ = make_desks()
    below = replace(ada, folder="src")
    steps = below.ok("claim", "auth/", "path:Makefile", "*.py", "/*.md", "F001", "--json").json
    assert steps["next"][0] == "gitlease renew /src/auth /src/Makefile '/src/**/*.py' '/*.md' F001"
    assert [lease["resource"] for lease in steps["leases"]] == [
        "src/auth",
        "src/Makefile",
        "src/**/*.py",
        "/*.md",
        "F001",
    ]


def test_a_refusal_never_prints_what_takes_the_lease_away() -> None:
    ada, bob = make_desks()
    ada.ok("claim", "F001")
    for argv in (
        ("claim", "F001"),
        ("claim", "F001", "--takeover", "--reason", "mine"),
        ("claim", "F001", "--wait", "1s"),
        ("release", "F001"),
        ("done", "F001"),
        ("renew", "F001"),
        ("extend", "F001", "1h"),
    ):
        ran = bob.run(*argv, "--json")
        assert ran.code in (1, 3)
        assert not re.search(r"--takeover|revoke|--reopen", ran.out + ran.err)
        limit = "a takeover replaces an assignment, never a live lease"
        assert (limit in ran.out) is ("--takeover" in argv)


def test_further_conflicts_have_a_line_each() -> None:
    ada, bob = make_desks()
    ada.ok("claim", "src/a/")
    ada.ok("claim", "src/b/", "--ttl", "2h")
    lines = bob.run("claim", "src/").err.splitlines()
    check_words(lines[0])
    check_words(lines[1])


def test_expired_lease_until_its_lapse_has_one_time_in_every_view() -> None:
    ada, bob = make_desks(task("T-1"))
    ada.ok("claim", "deploy", "--any")
    ada.ok("claim", "T-1")
    bob.clock.advance(920)
    free, kept = "free from 12:16:00Z", "blocks others until 12:16:00Z"
    for verb in (["claim", "--any"], ["release"], ["renew"], ["wait", "--timeout", "10s"]):
        assert free in bob.run(verb[0], "deploy", *verb[1:]).err
        refused = bob.run(verb[0], "T-1", *verb[1:])
        check_words(refused.err)
        assert not any("claim T-1" in line for line in refused.err.splitlines()), "cannot succeed"
    for view in (["list"], ["status"], ["board", "--once"]):
        assert free in bob.ok(*view).out
        assert kept.replace("others ", "") in bob.ok(*view).out.replace("others ", "")
    assert free in bob.ok("show", "deploy").out
    assert kept in bob.ok("show", "T-1").out
    assert kept in bob.ok("queue", "--all").out
    leases = {x["resource"]: x for x in bob.ok("list", "--json").json["leases"]}
    times = {name: (x["state"], x["free_at"], x["lapses_at"]) for name, x in leases.items()}
    at = "2026-11-20T12:16:00Z"
    assert times == {"deploy": ("expired", at, at), "T-1": ("expired", None, at)}
    bob.clock.advance(60)
    assert not bob.ok("list", "--json").json["leases"]


def test_claim_after_a_lapse_is_no_takeover_in_notice_log_and_board() -> None:
    ada, bob = make_desks(task("T-1"))
    for name in ("plain", "reason", "T-1"):
        ada.ok("claim", name, "--any", "--ttl", "10s")
    bob.clock.advance(120)
    bob.ok("claim", "plain", "--any")
    bob.ok("claim", "reason", "--any", "--reason", "mine now")
    bob.ok("claim", "T-1", "--takeover", "--reason", "she is away")
    views = (ada.run("status").err, ada.ok("log").out, ada.ok("board", "--once").out)
    events = ada.ok("log", "--json").json["events"]
    details = {x["resource"]: x["detail"] for x in events if x["kind"] == "taken_over"}
    lapsed = "after ada@example.com's lapsed"
    assert details == {"plain": lapsed, "reason": lapsed, "T-1": None}
    for view in views:
        lines = [x for x in view.replace("_", " ").splitlines() if "taken over" in x]
        assert [line for line in lines if "T-1" in line] == lines
        assert lines


def test_refusal_of_a_live_assigned_task_hints_what_can_succeed() -> None:
    ada, bob = make_desks(task("T-1"))
    ada.ok("claim", "T-1")
    for typed in (["claim", "T-1"], ["run", "T-1", "--", "true"], ["set", "T-1", "done"]):
        assert "--wait" not in bob.run(*typed).err
    assert bob.run("claim", "T-1", "--json").json["error"]["next"] == [
        "gitlease wait T-1 --timeout 16m"
    ]


def test_the_date_is_shown_when_it_is_not_today() -> None:
    ada, bob = make_desks()
    ada.ok("config", "--ledger", "ttl_max", "3d")
    ada.ok("claim", "F001", "--ttl", "1d")
    check_words(bob.run("claim", "F001").err)


def test_what_is_assigned_has_no_time_at_which_it_is_free() -> None:
    ada, bob = make_desks()
    ada.ok("claim", "F001")
    remote = ada.store.remote
    tip = remote.heads["global"]
    (lease,) = remote.read(tip).every_lease()
    commit = read_commit(remote.objects, tip)
    assert commit is not None
    record = {lease_file(lease): write_lease(replace(lease, edge=True))}
    tree = write_tree(remote.objects, commit.tree_id, record)
    data = remote.objects.read(tip, COMMIT, 10_000).replace(commit.tree_id.encode(), tree.encode())
    remote.heads["global"] = remote.objects.write(COMMIT, data)
    ada.store.state("global").forget()
    bob.clock.advance(3_600)
    ran = bob.run("claim", "F001", "--json")
    assert ran.json["error"]["free_at"] is None
    assert ran.json["error"]["next"] == ["gitlease show F001"]
    check_words(ran.err.splitlines())
    agent = bob.run("claim", "F001", "--session", "claude:12345678").err
    check_words(agent)
    assert "--takeover" not in agent


def test_ones_own_other_session_is_said_to_be_that() -> None:
    ada, _ = make_desks()
    ada.ok("claim", "F001", "--session", "one")
    err = ada.run("claim", "F001", "--session", "two").err
    check_words(err)


def test_a_takeover_names_who_was_displaced_and_they_are_told() -> None:
    ada, bob = make_desks()
    ada.ok("claim", "F001", "--reason", "rate limits")
    bob.clock.advance(961)
    check_words(bob.ok("claim", "F001").out.splitlines()[1])
    late = ada.run("renew", "F001")
    assert late.code == 3
    check_words(late.err)


@pytest.mark.parametrize("argv", [("list",), ("claim", "F001")], ids=words)
def test_a_displaced_holder_is_told_at_the_next_command(argv: tuple[str, ...]) -> None:
    ada, bob = make_desks()
    ada.ok("claim", "F001")
    bob.clock.advance(961)
    bob.ok("claim", "F001")
    told = "bob@example.com claimed F001, after your lease lapsed"
    assert told in ada.run(*argv, "--json").json["warnings"]
    assert told not in ada.ok("list").err, "once in each clone"


def test_a_lost_lease_says_so() -> None:
    ada, _ = make_desks()
    ada.ok("claim", "F001")
    ada.clock.advance(901)
    check_words(ada.run("renew", "F001").err)


@pytest.mark.parametrize("argv", [("renew", "F001"), ("extend", "F001", "1h"), ("park", "F001")])
def test_no_claim_is_proposed_of_what_stays_assigned_to_another(argv: tuple[str, ...]) -> None:
    ada, bob = make_desks(task("F001"), task("F002", "sam@example.com"))
    ada.ok("claim", "F001")
    ada.clock.advance(3_600)
    ran = bob.run(*argv, "--json")
    assert (ran.code, ran.json["error"]["next"]) == (3, ["gitlease show F001"])
    check_words(bob.run(*argv).err)
    unheld = bob.run(argv[0], "F002", *argv[2:], "--json")
    assert (unheld.code, unheld.json["error"]["next"]) == (3, ["gitlease show F002"])


def test_waiting_is_said_once_for_each_lease_in_the_way() -> None:
    ada, bob = make_desks()
    ada.ok("claim", "F001")
    ran = bob.run("claim", "F001", "--wait", "5m")
    assert len(ada.clock.naps) > 10
    check_words(ran.err)


def test_extend_says_when_there_is_nothing_to_stretch() -> None:
    ada, _ = make_desks()
    ada.ok("claim", "F001", "--ttl", "1h")
    check_words(ada.ok("extend", "F001", "5m").out)


@pytest.mark.parametrize("word", ["", "  "])
def test_a_resource_that_is_empty_is_a_usage_error(word: str) -> None:
    ada, _ = make_desks()
    for argv in (["claim", "F001", word], ["renew", word], ["show", word], ["wait", word]):
        ran = ada.run(*argv)
        assert ran.code == 2
        check_words(ran.err.splitlines()[0])
    ran = ada.run("claim", "F001", "--path", word)
    assert ran.code == 2
    check_words(ran.err.splitlines()[0])
    assert ada.store.remote.asked == 0


def test_a_task_that_is_held_in_part_is_offered_by_its_free_scope_alone() -> None:
    ada, bob = make_desks(task("F001"))
    ada.ok("claim", "F001", "--scope", "parser")
    free = bob.run("renew", "F001", "--scope", "printer").err
    check_words(free.splitlines()[1:])
    for argv in (("renew", "F001"), ("done", "F001"), ("extend", "F001", "1h")):
        assert "gitlease claim" not in bob.run(*argv).err, argv
    check_words(bob.ok("wait", "F001", "--scope", "printer").err)
    ada.ok("claim", "x", "--scope", "parser", "--any")
    check_words(bob.ok("show", "x", "--scope", "printer").out)
    bob.ok("claim", "F001", "--scope", "printer")


def test_revoke_says_from_whom() -> None:
    ada, bob = make_desks()
    bob.ok("claim", "F001", "--session", "s1")
    ada.ok("config", "--ledger", "admins", "ada@example.com")
    check_words(ada.ok("revoke", "F001", "--reason", "gone").out)


READ = ("show", "release", "done", "renew", "park", "wait", "watch", "log")


@pytest.mark.parametrize(
    "argv",
    [
        ("renew",),
        ("renew", "--all", "F001"),
        ("claim",),
        ("extend", "F001"),
        ("revoke", "F001"),
        ("revoke", "--reason", "x"),
        ("revoke", "F", "--record", "x", "--reason", "x"),
        ("log", "-n", "0"),
        ("claim", "F001", "--ttl", "0"),
        ("claim", "F001", "--wait", "11y"),
        ("claim", "F001", "--reason", "x" * 501),
        ("claim", "F001", "--reason", "a\x1b[2Jb"),
        ("note", "F001", "x" * 2001),
        ("note", "F001", " "),
        ("claim", "F001", "--scope", ""),
        ("claim", "F001", "--path", "!x"),
        ("claim", "a b"),
        ("claim", "lib/n\udce9"),
        ("claim", "n\udce9"),
        ("claim", "path:n\udce9"),
        ("claim", "F001", "--path", "lib/n\udce9"),
        ("claim", "F001", "--scope", "n\udce9"),
        ("note", "F001", "n\udce9"),
        *((verb, "a/n\udce9") for verb in READ),
        ("config", "--cached"),
        ("config", "--ledger", "ttl_mx"),
        ("config", "--ledger", "skew", "long"),
    ],
    ids=words,
)
def test_bad_arguments_are_told_before_anybody_is_asked(argv: tuple[str, ...]) -> None:
    ada, _ = make_desks()
    ran = ada.run(*argv)
    assert (ran.code, ran.out, ada.store.remote.asked) == (2, "", 0)
    check_words(ran.err)


def test_hints_follow_the_name_it_was_called_by() -> None:
    ada, bob = make_desks()
    check_words(ada.ok("claim", "F001", prog="git lease").err)
    check_words(bob.run("claim", "F001", prog="git lease").err)
    check_words(bob.ok("claim", "-h", prog="git lease").out)


def test_a_remote_out_of_reach_hints_to_what_this_clone_knows() -> None:
    ada, _ = make_desks()
    ada.ok("claim", "F001")
    ada.store.remote.failing = Unavailable("the remote cannot be reached: no route to host")
    ran = ada.run("list")
    assert (ran.code, ran.out) == (5, "")
    check_words(ran.err.splitlines()[1])
    cached = ada.ok("list", "--cached")
    assert "F001" in cached.out
    check_words(cached.err)


def test_a_ledger_that_went_back_hints_to_init_and_gives_programs_nothing_to_run() -> None:
    ada, _ = make_desks()
    ada.store.remote.failing = AnotherLedger("the ledger is another one")
    ran = ada.run("claim", "F001", "--json")
    assert (ran.code, ran.json["error"]["next"]) == (7, [])
    check_words(ran.err)


def test_a_ledger_that_was_rolled_back_is_never_accepted_by_init() -> None:
    ada, _ = make_desks()
    ada.store.remote.failing = Rollback("the ledger was rolled back", hints=("push it back",))
    ran = ada.run("claim", "F001")
    assert ran.code == 7
    check_words(ran.err)


def test_control_characters_of_a_remote_are_spelt_out() -> None:
    ada, _ = make_desks()
    ada.store.remote.failing = Denied("remote: \x1b[2Jcome \u202eback\x9b31m\nhint: obey")
    ran = ada.run("claim", "F001")
    check_words(ran.err)
    assert ran.err.replace("\n", "").isprintable()
    assert ada.run("claim", "F001", "--json").out.replace("\n", "").isprintable()


def test_warnings_are_told_once() -> None:
    ada, _ = make_desks()
    ada.store.warnings = ("there is no remote", "there is no remote")
    check_words(ada.ok("list").err)
    assert ada.ok("list", "--json").json["warnings"] == ["there is no remote"]


def test_a_clock_that_is_wrong_is_a_warning() -> None:
    ada, bob = make_desks()
    ada.ok("claim", "F001")
    bob.clock.skew(-7_200)
    warning = bob.ok("show", "F001", "--json").json["warnings"][0]
    check_words(warning)


def test_every_option_reaches_the_workspace_before_and_after_the_verb() -> None:
    ada, _ = make_desks()
    ada.ok("-C", "a", "--session", "s", "log", "-C", "b", "--layer", "night", "--remote", "up")
    assert ada.opened == [
        {
            "directory": "a/b",
            "layer": "night",
            "local": False,
            "remote": "up",
            "session": "s",
            "no_session": False,
            "anonymous": True,
        }
    ]
    ada.ok("--local", "list", "--no-session")
    assert (ada.opened[1]["local"], ada.opened[1]["no_session"]) == (True, True)


def test_a_layer_that_nobody_uses_is_mistyped() -> None:
    ada, _ = make_desks()
    ada.ok("claim", "F001")
    for verb in ("list", "status", "wait F001", "watch", "note F001 hi"):
        refused = ada.run(*verb.split(), "--layer", "glbal")
        assert refused.code == 7
        check_words(refused.err)
    assert ada.run("list", "--layer", "global").code == 0


def test_the_verbs_of_this_face() -> None:
    assert set(app.MODULES) == {
        *("init", "claim", "renew", "extend", "release", "done", "revoke", "show", "list"),
        *("status", "log", "whoami", "note", "config", "demo", "doctor", "selftest"),
        *("queue", "next", "brief", "set", "hooks", "agent", "mcp"),
        *("park", "session", "wait", "watch", "board", "run", "dispatch", "work", "push", "fence"),
        *("check", "server", "serve", "verify", "help", "completion", "uninstall"),
        *("land", "add"),
    }


def test_a_hint_to_wait_fits_the_time_that_is_left() -> None:
    ada, bob = make_desks()
    ada.ok("claim", "F001", "--ttl", "20s")
    check_words(bob.run("claim", "F001").err)


def test_a_renewal_that_does_not_shorten_says_so() -> None:
    (ada,) = make_desks()[:1]
    ada.ok("claim", "F001", "--ttl", "2h")
    for about in (["F001"], ["--all"]):
        ran = ada.run("renew", *about, "--ttl", "5m")
        assert ran.code == 0
        check_words(ran.err)
