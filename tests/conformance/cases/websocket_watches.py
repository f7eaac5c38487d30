"""Watches over a websocket: what the handshake answers, and that each event is a message."""

import base64
import json

from tests.conformance.api_session import TABLE, ApiSession, brief
from tests.conformance.catalogue import case
from tests.conformance.things import W, widget
from tests.conformance.websockets import CLOSE, PING, PONG, TEXT, upgraded, watch_path

ORIGIN = "http://localhost"


@case("P2")
def websocket_watch_gives_each_event_as_a_message(session: ApiSession) -> None:
    since = session.get(W, note=False).rv
    with upgraded(session, watch_path(session, W, resourceVersion=since), origin=ORIGIN) as ws:
        session.note("handshake", [ws.code, ws.accepted, ws.headers.get("sec-websocket-protocol", "")])
        session.post(W, widget(), note=False)
        session.patch(f"{W}/one", {"spec": {"size": 5}}, note=False)
        session.delete(f"{W}/one", note=False)
        frames = [ws.frame() for _ in range(3)]
        events = [json.loads(text) for _, text in frames]
        session.note("frames", [[kind, text.endswith(b"\n"), text.count(b"\n")] for kind, text in frames])
        session.note("events", events)
    assert {kind for kind, _ in frames} == {TEXT}
    assert brief(events) == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]


@case("P2")
def websocket_watch_answers_pings_and_ends(session: ApiSession) -> None:
    since = session.get(W, note=False).rv
    with upgraded(session, watch_path(session, W, resourceVersion=since, timeoutSeconds="2"), origin=ORIGIN) as ws:
        ws.send(PING, b"there?")
        session.note("pong", [str(part) for part in ws.frame()])
        ws.send(TEXT, b"nobody reads this")
        kind, payload = ws.frame()
        session.note("end", [kind, payload.hex()])
    assert kind == CLOSE
    with upgraded(session, watch_path(session, W, resourceVersion=since), origin=ORIGIN) as ws:
        ws.send(CLOSE, (1000).to_bytes(2, "big"))
        try:
            session.note("closed", ws.frame()[0])
        except (EOFError, ConnectionResetError):
            session.note("closed", "at once")


@case("P2")
def websocket_watch_refusals(session: ApiSession) -> None:
    path = watch_path(session, W, timeoutSeconds="1")
    odd: dict[str, dict[str, str]] = {
        "no origin": {},
        "an origin that is none": {"origin": "://"},
        "an old version": {"origin": ORIGIN, "sec_websocket_version": "8"},
        "no key": {"origin": ORIGIN, "sec_websocket_key": ""},
        "one protocol": {"origin": ORIGIN, "sec_websocket_protocol": "mine"},
        "two protocols": {"origin": ORIGIN, "sec_websocket_protocol": "mine, yours"},
    }
    for name, headers in odd.items():
        with upgraded(session, path, **headers) as ws:
            session.note(name, [ws.code, ws.accepted, ws.headers.get("sec-websocket-protocol", "")])
    with upgraded(session, path, token=False, origin=ORIGIN) as ws:
        session.note("nobody", ws.code)
    with upgraded(session, watch_path(session, "/api/v1/namespaces/x/nonsense"), origin=ORIGIN) as ws:
        session.note("nothing there", ws.code)
    with upgraded(session, session.path(W), origin=ORIGIN) as ws:
        session.note("a list", ws.code)


@case("P2")
def websocket_watch_with_the_token_as_a_protocol(session: ApiSession) -> None:
    """As browsers have to, which cannot set headers."""
    path = watch_path(session, W, timeoutSeconds="1")
    word = base64.urlsafe_b64encode(session.server.token.encode()).decode().rstrip("=")
    named = f"base64url.bearer.authorization.k8s.io.{word}"
    for name, protocols in {
        "with another": f"{named}, mine",
        "alone": named,
        "twice": f"{named}, {named}, mine",
    }.items():
        with upgraded(session, path, token=False, origin=ORIGIN, sec_websocket_protocol=protocols) as ws:
            session.note(name, [ws.code, ws.accepted, ws.headers.get("sec-websocket-protocol", "")])


@case("P2")
def websocket_watch_as_a_table(session: ApiSession) -> None:
    session.post(W, widget(), note=False)
    with upgraded(session, watch_path(session, W), origin=ORIGIN, accept=TABLE) as ws:
        kind, text = ws.frame()
        event = json.loads(text)
        session.note("first", [kind, event["type"], event["object"]["kind"]])
    assert (kind, event["object"]["kind"]) == (TEXT, "Table")
    assert PONG
