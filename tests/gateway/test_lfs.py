"""Git LFS's locks: by its own client, as it is installed, and by requests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.availability import missing
from support.clock import ManualClock
from support.gateway import Served
from support.ledgers import place
from support.remotes import Remote
from support.repos import commit_file, git, run_git
from support.running import Desk
from support.snapshots import check_words

from gitlease.gateway.lfs import keep_locks
from gitlease.gateway.opening import open_gateway
from gitlease.gateway.request_handler import MOST_BYTES

JO, KIM = "jo@example.com", "kim@example.com"
MEDIA = "application/vnd.git-lfs+json"
DAY = 86_400


# --- by the client ----------------------------------------------------------------------------


class Artist:
    """A person with a clone, and the client of Git LFS."""

    def __init__(self, served: Served, clone: Path, name: str) -> None:
        self.clone, url = clone, f"{served.url}/lfs"
        for words in (
            ("config", "lfs.url", url),
            ("config", f"lfs.{url}.locksverify", "true"),
            ("lfs", "install", "--local", "--force"),
        ):
            git(clone, *words)
        self.names_itself(served.url, served.secret(name))

    def names_itself(self, url: str, secret: str) -> None:
        """Have the client send this secret to a server."""
        helper = f"!f() {{ echo username=any; echo password={secret}; }}; f"
        git(self.clone, "config", f"credential.{url}.helper", helper)

    def lfs(self, *words: str, code: int = 0) -> str:
        """What the client prints, both streams."""
        return self.git("lfs", *words, code=code)

    def git(self, *words: str, code: int = 0) -> str:
        done = run_git(self.clone, *words)
        seen = done.stdout + done.stderr
        assert done.returncode == code, (words, seen)
        return seen

    def locks(self, *words: str) -> Any:
        return json.loads(self.lfs("locks", "--json", *words))


@pytest.fixture
def people(names: Served, clones: Callable[..., list[Path]]) -> Callable[..., list[Artist]]:
    """Make people with clones of their own, by their names."""
    if shutil.which("git-lfs") is None:
        missing("git-lfs")
    return lambda *who: [
        Artist(names, clone, name) for clone, name in zip(clones(len(who)), who, strict=True)
    ]


@pytest.fixture
def jo(people: Callable[..., list[Artist]]) -> Artist:
    (one,) = people("jo")
    return one


@pytest.fixture
def kim(people: Callable[..., list[Artist]], jo: Artist) -> Artist:
    (one,) = people("kim")
    return one


def test_the_client_locks_lists_and_unlocks(jo: Artist, kim: Artist, names: Served) -> None:
    jo.lfs("lock", "art/a.psd")
    (lock,) = kim.locks()
    assert (lock["path"], lock["owner"]) == ("art/a.psd", {"name": JO})
    check_words(kim.lfs("lock", "art/a.psd", code=2))
    listed = Desk(names.folder).document("list")["leases"]
    assert [(x["resource"], x["holder"], x["ttl_seconds"]) for x in listed] == [
        ("art/a.psd", JO, 8 * 3_600)
    ]
    assert kim.locks("--path", "art/a.psd") == kim.locks("--id", lock["id"]) == [lock]
    assert kim.locks("--path", "art/b.psd") == kim.locks("--id", "nonsense") == []
    assert [x["path"] for x in jo.locks("--local")] == ["art/a.psd"]
    assert jo.locks("--verify") == {"ours": [lock], "theirs": []}
    assert kim.locks("--verify") == {"ours": [], "theirs": [lock]}
    assert "O art/a.psd" in jo.lfs("locks", "--verify")

    for force in ([], ["--force"]):
        seen = kim.lfs("unlock", *force, "--id", lock["id"], code=2)
        check_words(seen.replace(lock["id"], "ID"))
    assert jo.locks() == [lock]
    jo.lfs("unlock", "--force", "art/a.psd")  # of its own; the file is in no commit
    assert jo.locks() == jo.locks("--local") == []
    check_words(kim.lfs("unlock", "--id", lock["id"], code=2).replace(lock["id"], "ID"))
    kim.lfs("lock", "art/a.psd")
    assert [x["owner"]["name"] for x in jo.locks()] == [KIM]


@pytest.mark.slow
def test_an_admin_unlocks_by_force(jo: Artist, kim: Artist, names: Served) -> None:
    jo.lfs("lock", "art/a.psd")
    kim.lfs("lock", "art/b.psd")
    desk = Desk(names.folder)
    desk.document("config", "--ledger", "admins", f"{KIM} w1@example.com")
    check_words(jo.lfs("unlock", "--force", "art/b.psd", code=2))
    kim.lfs("unlock", "--force", "art/a.psd")
    assert [x["path"] for x in jo.locks()] == ["art/b.psd"]
    (event,) = (x for x in desk.document("log")["events"] if x["kind"] == "revoked")
    assert (event["holder"], event["by"]) == (JO, KIM)


def test_a_push_of_a_file_that_another_locked_is_refused(jo: Artist, kim: Artist) -> None:
    for path in ("art/a.psd", "art/b.psd"):
        commit_file(jo.clone, path, "first")
    jo.git("push", "-q", "origin", "HEAD:main")
    kim.git("pull", "-q", "origin", "main")
    jo.lfs("lock", "art/a.psd")
    commit_file(kim.clone, "art/a.psd", "second")
    seen = kim.git("push", "origin", "HEAD:main", code=1)
    assert f"art/a.psd - {JO}" in seen
    jo.lfs("unlock", "art/a.psd")
    kim.lfs("lock", "art/a.psd")
    kim.git("push", "origin", "HEAD:main")
    assert [x["owner"]["name"] for x in jo.locks()] == [KIM], "a push unlocks nothing"


@pytest.mark.slow
def test_names_of_files_are_taken_as_they_are(jo: Artist, kim: Artist) -> None:
    odd = ["art/[1] *?.psd", "!c", "Ä/ö ß.psd", "e{1,2}.psd", "path:f", "g\\h"]
    for path in odd:
        assert path in jo.lfs("lock", path)
    assert sorted(x["path"] for x in kim.locks()) == sorted(odd)
    assert JO in kim.lfs("lock", "art/[1] *?.PSD", code=2)
    assert "art/1 xx.psd" in kim.lfs("lock", "art/1 xx.psd"), "nothing is a pattern"
    for path in odd:
        jo.lfs("unlock", "--force", path)
    assert [x["owner"]["name"] for x in jo.locks()] == [KIM]


# --- how long they last -----------------------------------------------------------------------


def test_a_running_gateway_renews_locks(
    names: Served, manual_clock: ManualClock, path_remote: Remote
) -> None:
    gateway = names.app.gateway
    for who, path in (("jo", "a.psd"), ("jo", "b.psd"), ("kim", "c.psd")):
        assert lock(names, path, who=who).status_code == 201
    names.ask("jo", "PUT", "/v1/leases/d.psd%2F", json={"ttl": "15m"})
    again = names.ask("jo", "PUT", "/v1/leases/path:b.psd", json={"reason": "retouching"})
    assert again.json()["status"] == "renewed"  # and a lock it stays
    assert keep_locks(gateway) == 60
    place(path_remote.bare, {f"paths/ab/x-ab{'0' * 14}.yaml": b"damaged"}, onto=True)
    assert len(paths(names)) == 4
    pushes = names.pushes()
    for _ in range(6):
        manual_clock.advance(4 * 3_600)
        keep_locks(gateway)
    assert names.pushes() <= pushes + 14, "one for each person each time, and by the gateway itself"
    assert paths(names) == ["a.psd", "b.psd", "c.psd"]
    manual_clock.advance(9 * 3_600)
    keep_locks(gateway)
    assert paths(names) == [], "they lapse where no gateway runs"


@pytest.mark.slow
def test_a_lock_with_a_ttl_is_renewed_by_its_owner_alone(
    names: Served, manual_clock: ManualClock
) -> None:
    gateway = names.app.gateway
    gateway.lock_ttl = 3_600
    first = lock(names, "a.psd").json()["lock"]
    lock(names, "b.psd", who="kim")
    for _ in range(3):
        manual_clock.advance(1_800)
        keep_locks(gateway)
        assert names.ask("jo", "POST", "/lfs/locks/verify", json={}).status_code == 200
    assert paths(names) == ["a.psd"], "kim asked nothing"
    again = lock(names, "a.psd").json()["lock"]
    assert (again["id"], again["expires_at"] > first["expires_at"]) == (first["id"], True)
    manual_clock.advance(3_700)
    assert lock(names, "a.psd", who="kim").status_code == 201, "it has lapsed"
    assert names.ask("jo", "POST", f"/lfs/locks/{first['id']}/unlock", json={}).status_code == 404


def test_the_settings_of_the_gateways_clone_count(clone: Path, names: Served) -> None:
    assert refused(names.ask("jo", "POST", "/lfs/objects/batch", json={}), 501)
    there = "https://example.com/art.git/info/lfs"
    settings = f"lfs: {{lock_ttl: 2d, objects: '{there}/'}}"
    (clone / ".gitlease.yaml").write_text(settings, encoding="utf-8")
    gateway = open_gateway(str(clone))
    assert gateway.lock_ttl == 2 * DAY
    names.app.gateway.lfs_objects = gateway.lfs_objects
    answer = names.ask("jo", "POST", "/lfs/objects/batch", json={})
    assert (answer.status_code, answer.headers["location"]) == (307, f"{there}/objects/batch")


# --- by requests ------------------------------------------------------------------------------


def lock(served: Served, path: object, *, who: str = "jo", **more: object) -> httpx.Response:
    return served.ask(who, "POST", "/lfs/locks", json={"path": path, **more})


def paths(served: Served, **query: str) -> list[str]:
    answer = served.ask("jo", "GET", "/lfs/locks", params=query)
    assert (answer.status_code, answer.headers["content-type"]) == (200, MEDIA)
    return [x["path"] for x in answer.json()["locks"]]


def refused(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["content-type"]) == (status, MEDIA), answer.text
    body: dict[str, Any] = answer.json()
    assert body["message"]
    return body


def test_a_lock_has_the_fields_of_the_api(names: Served) -> None:
    made = lock(names, "art/a.psd", ref={"name": "refs/heads/none"})
    assert (made.status_code, made.headers["content-type"]) == (201, MEDIA)
    assert made.json().keys() == {"lock"}, "the client takes a message for a refusal"
    one = made.json()["lock"]
    assert one.keys() == {"id", "path", "locked_at", "owner", "expires_at"}
    assert refused(lock(names, "art/a.psd", who="kim"), 409)["lock"] == one
    names.secret("ann", "read")
    refused(lock(names, "art/b.psd", who="ann"), 403)
    ended = names.ask("jo", "POST", f"/lfs/locks/{one['id']}/unlock", json={"force": False})
    assert (ended.status_code, ended.json()) == (200, {"lock": one})
    refused(names.ask("jo", "POST", f"/lfs/locks/{one['id']}/unlock"), 404)


def test_leases_of_others_are_locks(names: Served) -> None:
    terms = {"paths": ["src/a.c", "src/b.c"]}
    names.ask("kim", "PUT", "/v1/leases/T1", json=terms)
    names.ask("kim", "PUT", "/v1/leases/art%2F**", headers={"Gitlease-Session": "one"})
    assert paths(names) == ["art/**", "src/a.c", "src/b.c"]
    for path in ("art/a.psd", "src/a.c"):
        body = refused(lock(names, path), 409)
        assert body["lock"]["owner"] == {"name": KIM}
        assert "art" in body["lock"]["path"] or path == body["lock"]["path"]
    art, first, _ = names.ask("kim", "GET", "/lfs/locks").json()["locks"]
    check_words(
        refused(names.ask("kim", "POST", f"/lfs/locks/{first['id']}/unlock"), 403)["message"]
    )
    check_words(refused(lock(names, "art/a.psd", who="kim"), 409)["message"])
    assert names.ask("kim", "POST", f"/lfs/locks/{art['id']}/unlock").status_code == 200
    assert paths(names, path="SRC/A.C") == ["src/a.c"]


def test_locks_come_in_pages(names: Served) -> None:
    wanted = [f"art/{n}.psd" for n in range(3)]
    for n, path in enumerate(wanted):
        lock(names, path, who=("jo", "kim")[n % 2])
    for size in (1, 2, 1_000_000_000):
        found, cursor = list[str](), ""
        while True:
            query = {"limit": size, "cursor": cursor}
            page = names.ask("jo", "GET", "/lfs/locks", params=query).json()
            verified = names.ask("jo", "POST", "/lfs/locks/verify", json=query).json()
            assert verified.get("next_cursor") == page.get("next_cursor")
            found += [x["path"] for x in page["locks"]]
            assert {x["owner"]["name"] for x in verified["theirs"]} <= {KIM}
            if not (cursor := page.get("next_cursor", "")):
                break
        assert found == wanted


PATHS = (None, "", 7, "/etc/passwd", "a/../../b", "a//b", "a/", "a\nb", "a" * 600, "\ud800")


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_is_none_is_refused(names: Served, path: object) -> None:
    body = json.dumps({"path": path})
    answer = names.ask("jo", "POST", "/lfs/locks", content=body, headers={"Content-Type": MEDIA})
    refused(answer, 400)
    assert paths(names) == []


def test_bad_requests_are_refused(names: Served) -> None:
    def post(path: str, content: str, kind: str = MEDIA) -> httpx.Response:
        return names.ask("jo", "POST", path, content=content, headers={"Content-Type": kind})

    for path in ("/lfs/locks", "/lfs/locks/verify", "/lfs/locks/x/unlock"):
        for content in ("{", "[]", "\xff", '{"ref": 7}', '{"ref": {"name": 7}}'):
            refused(post(path, content), 400)
        refused(post(path, json.dumps({"path": "a" * MOST_BYTES})), 413)
        refused(post(path, '{"path": "a"}', "text/plain"), 415)
    refused(post("/lfs/locks/x/unlock", '{"force": 1}'), 400)
    for query in ("limit=-1", "limit=x", "cursor=nonsense", "limit=%C2%B2"):
        refused(names.ask("jo", "GET", f"/lfs/locks?{query}"), 400)
    for body in ({"limit": -1}, {"limit": True}, {"limit": 1.5}, {"cursor": 7}):
        refused(names.ask("jo", "POST", "/lfs/locks/verify", json=body), 400)
    refused(names.ask("jo", "GET", "/lfs/nothing"), 404)
    answer = httpx.get(f"{names.url}/lfs/locks", trust_env=False)
    check_words(refused(answer, 401)["message"])
    assert answer.headers["lfs-authenticate"].startswith("Basic")
    basic = httpx.get(f"{names.url}/lfs/locks", auth=("any", names.secret("jo")), trust_env=False)
    assert basic.status_code == 200


def test_a_message_that_no_lock_can_report_comes_with_the_next_answer(names: Served) -> None:
    names.ask("jo", "PUT", "/v1/leases/deploy")
    note = {"resource": "deploy", "text": "main is red", "to_holder": True}
    noted = names.ask("kim", "POST", "/v1/leases:note", json=note)
    assert noted.status_code == 200, noted.text
    assert lock(names, "art/a.psd").json().keys() == {"lock"}
    assert paths(names) == ["art/a.psd"]
    refused(lock(names, "art/"), 400)
    listed = names.ask("jo", "GET", "/v1/leases").json()
    told = 'note on deploy by kim@example.com: "main is red"'
    assert listed["warnings"].count(told) == 1
    assert told not in names.ask("jo", "GET", "/v1/leases").json()["warnings"]
