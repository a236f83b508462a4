"""What people read, word for word, under a clock that stands still."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from doors.fake import make_desks, words
from support.snapshots import check_words
from support.tasks import task

from gitlease.kernel.rules.errors import AnotherLedger, Denied, Unavailable


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


def test_a_claim_after_a_lapse_is_no_takeover() -> None:
    ada, bob = make_desks(task("T-1"))
    for name in ("plain", "T-1"):
        ada.ok("claim", name, "--any", "--ttl", "10s")
    bob.clock.advance(120)
    bob.ok("claim", "plain", "--any", "--reason", "mine now")
    bob.ok("claim", "T-1", "--takeover", "--reason", "she is away")
    check_words(ada.run("status").err)
    check_words(ada.ok("log").out)


@pytest.mark.parametrize(
    "argv",
    [
        ("renew",),
        ("renew", "--all", "F001"),
        ("extend", "F001"),
        ("revoke", "F001"),
        ("revoke", "F", "--record", "x", "--reason", "x"),
        ("claim", "F001", "--wait", "11y"),
        ("claim", "F001", "--reason", "a\x1b[2Jb"),
        ("claim", "lib/n\udce9"),
        ("claim", "F001", "--path", "lib/n\udce9"),
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


def test_a_remote_out_of_reach_hints_to_no_copy_where_there_is_none() -> None:
    ada, _ = make_desks(task("F001"))
    ada.store.remote.failing = Unavailable("the remote cannot be reached: no route to host")
    for verb in ("list", "queue", "status"):
        ran = ada.run(verb, "--json")
        assert (ran.code, ran.json["error"]["next"]) == (5, [])
        assert ada.run(verb, "--cached").code == 7
    check_words(ada.run("list", "--local", "--cached").err)


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


def test_control_characters_of_a_remote_are_spelt_out() -> None:
    ada, _ = make_desks()
    ada.store.remote.failing = Denied("remote: \x1b[2Jcome \u202eback\x9b31m\nhint: obey")
    ran = ada.run("claim", "F001")
    check_words(ran.err)
    assert ran.err.replace("\n", "").isprintable()
    assert ada.run("claim", "F001", "--json").out.replace("\n", "").isprintable()


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
            "brief": False,
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
