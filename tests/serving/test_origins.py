"""Other sites' pages and other names are turned away; this one's page and programs are not."""

import pytest

from flaxformer_mt.serving.access import Origins, Refusal, is_local
from flaxformer_mt.serving.server import bind
from tests.serving.stand_in import StandIn, running

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
LOCAL = Origins((), (), local=True)
ELSEWHERE = {"sec_fetch_site": "cross-site"}


def checked(origins, method="POST", **headers):
    """The reason of the refusal, or nothing."""
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    try:
        origins.check({"type": "http", "method": method, "headers": pairs})
    except Refusal as refusal:
        assert refusal.status == 403
        return refusal.reason
    return ""


@pytest.mark.parametrize(
    ("method", "headers", "reason"),
    [
        ("POST", {**ELSEWHERE, "sec_fetch_mode": "no-cors"}, "origin"),
        ("POST", {**ELSEWHERE, "sec_fetch_mode": "navigate", "origin": "null"}, "origin"),
        ("POST", {"sec_fetch_site": "same-site", "origin": "http://127.0.0.1:3000"}, "origin"),
        ("POST", {"sec_fetch_site": "what-comes-next"}, "origin"),
        # As browsers without Sec-Fetch-Site say it:
        ("POST", {"origin": "https://evil.test"}, "origin"),
        ("POST", {"origin": "null"}, "origin"),
        ("POST", {"origin": ""}, "origin"),
        ("GET", {**ELSEWHERE, "sec_fetch_mode": "no-cors"}, "origin"),
        ("POST", {}, ""),  # curl, LibreTranslate's clients
        ("POST", {"sec_fetch_site": "same-origin", "origin": "http://127.0.0.1:8000"}, ""),
        ("POST", {"sec_fetch_site": "none"}, ""),
        ("POST", {"origin": "http://127.0.0.1:8000"}, ""),
        ("GET", {**ELSEWHERE, "sec_fetch_mode": "navigate"}, ""),  # a link from elsewhere
    ],
)
def test_pages_of_other_sites_are_refused_and_programs_are_not(method, headers, reason):
    assert checked(LOCAL, method, host="127.0.0.1:8000", **headers) == reason


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        *((host, "host") for host in ("evil.test", "evil.test:8000", "localhost.evil.test")),
        *((host, "host") for host in ("127.0.0.1.evil.test", "a@b:1:2")),
        *((host, "") for host in ("localhost", "LOCALHOST:80", "a.localhost", "[::1]:80", "[::1]")),
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(host, reason):
    """Pages under it would pass for this server's own: they are of the same origin."""
    origin = f"http://{host}"
    assert checked(LOCAL, host=host, origin=origin, sec_fetch_site="same-origin") == reason


FOREIGN = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}


def test_a_foreign_site_s_text_is_not_translated():
    """A form needs no leave of the server's, so that not reading the answer is not enough."""
    with running(StandIn()) as server:
        for kind, body in ((FORM, "q=a&source=en&target=de"), (JSON, '{"text": "a"}')):
            request_headers = {"content-type": kind, **FOREIGN}
            status, answer, headers = server.ask("POST", "/translate", body, request_headers)
            assert status == 403 and "--cors" in answer["error"]
            assert headers["access-control-allow-origin"] is None
        assert server.metric("flaxformer_sentences_total") == 0
        assert server.refused("origin") == 2


def test_a_foreign_site_is_shown_nothing():
    with running(StandIn()) as server:
        for path in ("/languages", "/metrics", "/frontend/settings", "/openapi.json"):
            assert server.get(path, FOREIGN)[0] == 403
        for path in ("/", "/page/app.js", "/health"):
            status, answer, _ = server.get(path, {"host": "evil.test"})
            assert status == 403 and "--allowed-host" in answer["error"]


def test_whether_only_this_machine_reaches_it_is_seen_at_its_address():
    for host, local in (("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False)):
        with bind(host, 0) as listener:
            assert is_local(listener) == local


def test_an_origin_that_is_allowed_may_ask_and_read():
    allowed = "https://their.site"
    answered = "access-control-allow-origin"
    preflight = {"origin": allowed, "access-control-request-method": "POST"}
    with running(StandIn()) as server:
        assert server.get("/languages", {"origin": allowed})[2][answered] is None
        assert server.ask("OPTIONS", "/translate", headers=preflight)[0] == 403
    with running(StandIn(), cors_origins=(allowed,)) as server:
        headers = {"origin": allowed, "sec-fetch-site": "cross-site", "content-type": JSON}
        for method, path, body, head in [
            ("POST", "/translate", '{"text": "a"}', headers),
            ("GET", "/languages", None, headers),
            ("OPTIONS", "/translate", None, preflight),
        ]:
            status, _, got = server.ask(method, path, body, head)
            assert (status, got[answered]) == (200, allowed)
        for origin in ("https://other.site", f"{allowed}.evil.test"):
            status, _, got = server.get("/languages", {"origin": origin})
            assert (status, got[answered]) == (403, None)
            assert server.post("/translate", {"text": "a"}, origin=origin)[0] == 403
    anybody = Origins(("*",), (), local=True)
    assert checked(anybody, host="127.0.0.1", origin="https://other.site") == ""


# What browsers that tell and browsers that do not tell send from the page of a proxy.
TELLING = {"origin": "https://tr.example", "sec_fetch_site": "same-origin"}
SILENT = {"origin": "https://tr.example"}


@pytest.mark.parametrize(
    ("names", "host", "browser", "reason"),
    [
        ((), "127.0.0.1:8000", TELLING, ""),  # nginx and Apache, as they are
        ((), "127.0.0.1:8000", SILENT, "origin"),
        (("tr.example",), "127.0.0.1:8000", SILENT, ""),
        ((), "tr.example", TELLING, "host"),  # Caddy and Traefik, as they are
        (("tr.example",), "tr.example", TELLING, ""),
        (("tr.example",), "tr.example:443", SILENT, ""),
        (("tr.example",), "other.example", TELLING, "host"),
        (("tr.example:8443",), "tr.example:8443", {"origin": "http://tr.example:8443"}, ""),
        (("tr.example",), "127.0.0.1", {"origin": "http://tr.example:8443"}, "origin"),
        (("tr.example",), "127.0.0.1", {"origin": "ftp://tr.example"}, "origin"),
    ],
)
def test_behind_a_proxy(names, host, browser, reason):
    origins = Origins((), names, local=True)
    assert checked(origins, host=host, **browser) == reason
    assert checked(origins, host=host) == (reason if reason == "host" else "")  # a program


def test_a_server_for_others_is_asked_for_by_any_name_until_some_are_given():
    anyhow = Origins((), (), local=False)
    assert checked(anyhow, host="box.lan:8000", origin="http://box.lan:8000") == ""
    assert checked(anyhow, host="box.lan:8000", origin="http://evil.test") == "origin"
    named = Origins((), ("box.lan",), local=False)
    assert checked(named, host="box.lan:8000", origin="http://box.lan:8000") == ""
    assert checked(named, host="evil.test:8000", origin="http://evil.test:8000") == "host"
    assert checked(named, host="192.168.1.5:8000") == ""
