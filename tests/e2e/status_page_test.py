# SPDX-License-Identifier: Apache-2.0
"""The status page in a browser: what it says of a node and of answers that no node gives at will, that it
loads nothing from elsewhere and makes no markup of a name, and how it looks at the width of a desk and
of a phone. CRUST_SCREENSHOTS=DIR keeps the pictures."""

import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import struct
import tempfile
import threading
import unittest

from browser import Browser
from node import REPOSITORY
from scratch_node import AFTER, MIB, ScratchNodeTest, curl, free_port

FILES = {"/": ("status.html", "text/html"), "/status.css": ("status.css", "text/css"),
         "/status.js": ("status.js", "text/javascript")}
STATUS_POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
                 "form-action 'none'; frame-ancestors 'none'")
HOSTILE = "<script>alert(1)<!--'\"&amp;\u202e"
HOSTILE_SHOWN = "<script>alert(1)<!--'\"&amp;\ufffd"
TAGS = {"html", "head", "meta", "title", "link", "script", "body", "header", "h1", "h2", "p", "b", "time", "main",
        "noscript", "code", "a", "ul", "ol", "li", "section", "details", "summary", "span", "small", "table",
        "thead", "tbody", "tr", "th", "td", "div", "footer"}
ATTRIBUTES = {"lang", "charset", "name", "content", "rel", "href", "src", "defer", "class", "title", "datetime",
              "scope", "data-label", "open"}
LINKS = {"/v1/status", "/v1/volumes?live=1", "/metrics", "/v1/volumes", "/v1/resizes?last=100",
         "/v1/journal?last=100", "/v1/doctor"}


class PageTest(unittest.TestCase):
    """Assertions about every page that is read."""

    def read_page(self, scratch, url, *options):
        page, reports = Browser(scratch).read(url, *options)
        self.assertEqual(reports, [])
        self.assertLessEqual({tag for tag, _ in page.tags}, TAGS)
        self.assertLessEqual({name for _, attributes in page.tags for name in attributes}, ATTRIBUTES)
        self.assertEqual([one["src"] for one in page.all("script")], ["/status.js"])
        self.assertEqual([one["href"] for one in page.all("link")], ["/status.css"])
        self.assertLessEqual({one["href"] for one in page.all("a")}, LINKS)
        return page


class StatusPageTest(ScratchNodeTest, PageTest):
    """Of a real daemon."""

    def setUp(self):
        super().setUp()
        if not shutil.which("curl") or not Browser.is_there():
            self.skipTest("needs the programs curl and chromium")

    def build(self):
        """One volume in sync after a resize, one stalled, one that no sandbox uses, and one with a
        hostile name."""
        self.port = free_port()
        node = self.node({"http.listen": f"127.0.0.1:{self.port}"})
        self.grown = self.volume(node, "pvc-7d1c3f2a-database")
        self.held = self.volume(node, "pvc-19b0e4cc-archive")
        self.sandbox(node, self.grown, sandbox_id="a" * 64)
        self.sandbox(node, self.held, sandbox_id="b" * 64)
        self.monitor(node, self.grown, sandbox_id="a" * 64)
        self.agent(node)
        self.volume(node, "pvc-55aa0b1d-cache", size=48 * MIB)
        self.escaped = self.volume(node, HOSTILE)
        node.start()
        node.wait_for(self.grown.path, "in_sync")
        node.wait_for(self.held.path, "unknown", "monitor_missing")
        self.grown.loop.resize(AFTER)
        self.held.loop.resize(AFTER)
        node.wait_for(self.grown.path, "in_sync", hypervisor_bytes=AFTER)
        node.wait_for(self.held.path, "blocked", "monitor_missing")
        return node

    def test_the_pages_text(self):
        node = self.build()
        page = self.read_page(self.scratch, f"http://127.0.0.1:{self.port}/")
        status = json.loads(curl(node, "/v1/status")[1])
        held, = json.loads(curl(node, "/v1/volumes?volume=pvc-19b0e4cc-archive")[1])
        explained = json.loads(curl(node, f"/v1/volumes/{held['volume_id']}/explain")[1])
        for words in ("4 volumes", "1 stalled", "0 to look at", "1 in sync",
                      f"{status['host']} crustd {status['version']} \u00b7 20", " ready crustd runs",
                      "Stalled pvc-19b0e4cc-archive blocked monitor missing for",
                      f"{explained['reason_meaning']} {' '.join(explained['remedies'])}",
                      f"crustctl explain {held['volume_id']}", "Recent resizes", "32 MiB \u2192 64 MiB",
                      "in sync hypervisor +", "qemu"):
            self.assertIn(words, page.text)
        self.assertIn(HOSTILE_SHOWN, page.text)
        self.assertIn("not done yet", page.text)

    def test_files(self):
        node = self.build()
        for path, (name, content_type) in FILES.items():
            code, body = curl(node, path)
            self.assertEqual((code, body), (200, (REPOSITORY / "api" / name).read_bytes()))
            self.assertIsNone(re.search(rb"url\(|@import|https?:|[^/]//[a-z]", body))
            _, head = curl(node, path, "--head")
            self.assertIn(f"content-type: {content_type};", head.decode().lower())
            policy, = re.findall(rb"(?i)^content-security-policy: (.*?)\r?$", head, re.M)
            self.assertEqual(policy.decode(), STATUS_POLICY)
            self.assertIn(b"nosniff", head)
        self.assertIsNone(re.search(rb"(inner|outer)HTML|insertAdjacent|document\.write|\beval\b|Function\(|DOMParser",
                                    curl(node, "/status.js")[1]))
        self.assertRegex(curl(node, "/status.css")[1], rb"prefers-color-scheme: *dark")

    def draw(self, name, width, height, *options):
        directory = REPOSITORY / os.environ.get("CRUST_SCREENSHOTS", self.scratch)
        directory.mkdir(parents=True, exist_ok=True)
        (self.scratch / name).mkdir()
        return Browser(self.scratch / name).draw(f"http://127.0.0.1:{self.port}/", directory / f"{name}.png", width,
                                                 height, *options)

    def test_a_browser_draws_it(self):
        self.build()
        pictures = [self.draw("desk", 1280, 1100), self.draw("phone", 390, 1700),
                    self.draw("desk-dark", 1280, 1100, "--blink-settings=preferredColorScheme=0")]
        for picture, width in zip(pictures, (1280, 390, 1280)):
            self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(struct.unpack(">I", picture[16:20])[0], width)
        self.assertEqual(len(set(pictures)), 3)


STATUS = {"version": "1.2.3", "synced": True, "degraded": False, "problem": None, "host": "node-1",
          "doctor": {"errors": 0, "warnings": 0, "worst": None}, "summary": {}}
EXPLAINED = {"state_meaning": "The state.", "reason_meaning": "The reason.", "resizable_meaning": "The obstacle.",
             "remedies": [], "resize": None}
NOW = "2026-01-05T03:04:05.000Z"


def volume(volume_id, state="in_sync", reason="none", **more):
    return {"volume_id": volume_id, "pv": f"pv-{volume_id}", "target_path": f"/v/{volume_id}", "key": f"key-{volume_id}",
            "device": f"/dev/loop{volume_id}", "problem": None, "sandbox_id": None, "device_bytes": None,
            "hypervisor_bytes": None, "guest_bytes": None, "state": state, "reason": reason, "state_since": NOW,
            "next_attempt_at": None, "removed_at": None, "stalled": 0, "condition": None, "condition_message": None,
            "resizable": None, "resizable_reason": None, "pod_namespace": None, "pod_name": None, "claim": None} | more


def resize(resize_id, volume_id, **more):
    return {"resize_id": resize_id, "volume_id": volume_id, "target_path": f"/v/{volume_id}", "pv": f"pv-{volume_id}",
            "from_bytes": MIB, "to_bytes": 2 * MIB, "state": "in_sync", "reason": "none", "error": None,
            "detected_at": "2026-01-05T01:00:00.000Z", "hypervisor_at": None, "guest_at": None,
            "finished_at": None} | more


class AnswersTest(PageTest):
    """Of a server that has the page's files and the answers that a test gives it."""

    def setUp(self):
        if not Browser.is_there():
            self.skipTest("needs the program chromium")
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="crust-e2e-"))
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)
        self.asked = []

    @contextlib.contextmanager
    def serve(self, answers, script, policy=STATUS_POLICY):
        test = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def date_time_string(self, timestamp=None):
                return "Mon, 05 Jan 2026 03:04:05 GMT"

            def log_message(self, *_):
                pass

            def do_GET(self):
                test.asked.append(self.path)
                status, kind = 200, "application/json"
                if self.path in FILES:
                    name, kind = FILES[self.path]
                    body = (REPOSITORY / "api" / name).read_bytes()
                    body += script.encode() if self.path == "/status.js" else b""
                elif re.fullmatch("/v1/volumes/[0-9]+/explain", self.path) and self.path not in answers:
                    body = json.dumps(EXPLAINED).encode()
                else:
                    status, body = answers.get(self.path, (404, b'{"message":"none"}'))
                self.send_response(status)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", policy)
                self.end_headers()
                self.wfile.write(body)

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def show(self, volumes=(), resizes=(), status=(), script="", not_resizable=(), sandboxes=(),
             answers=None):
        """The page over these rows; answers: instead of rows, {path: (status, body)}."""
        rows = {"/v1/status": STATUS | dict(status), "/v1/volumes?live=1": list(volumes),
                "/v1/volumes?not_resizable=1": list(not_resizable), "/v1/sandboxes?live=1": list(sandboxes),
                "/v1/resizes?last=30": list(resizes)}
        given = {path: (200, json.dumps(value).encode()) for path, value in rows.items()}
        scratch = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        with self.serve(given | (answers or {}), script) as url:
            return self.read_page(scratch, url)

    def test_an_empty_node(self):
        page = self.show()
        for words in ("node-1 crustd 1.2.3 \u00b7 2026-01-05 03:04:05 UTC", "ready crustd runs, and sees this node",
                      "0 volumes 0 stalled 0 to look at 0 growing 0 in sync 0 not in use or only observed",
                      "Volumes No volume is staged on this node.", "Recent resizes No device has grown so far.",
                      "metrics volumes resizes journal doctor"):
            self.assertIn(words, page.text)
        self.assertEqual({one["href"] for one in page.all("a")}, LINKS)
        for words in ("Stalled", "To look at", "Would not grow"):
            self.assertNotIn(words, page.text)

    def test_health(self):
        page = self.show(status={"degraded": True, "problem": "<disk>", "synced": False,
                                 "doctor": {"errors": 1, "warnings": 2, "worst": "<kernel>"}})
        self.assertIn("degraded <disk> doctor errors 1, warnings 2 <kernel> 0 volumes", page.text)
        page = self.show(status={"synced": False})
        self.assertIn("starting the first scan is not done yet 0 volumes", page.text)

    def test_lists(self):
        """Which volumes are in which list, what is counted, and in which order."""
        volumes = [
            volume(1, "in_sync", pod_namespace="shop", pod_name="db-0", claim="data", sandbox_id="s"),
            volume(2, "block_grown", "none", claim="data", pod_namespace="shop"),
            volume(3, "shrunk", "none"),
            volume(4, "blocked", "no_device", problem="a problem"),
            volume(5, "host_grown", "policy"),
            volume(6, "block_grown", "agent_unsupported", stalled=1, next_attempt_at="2026-01-05T03:06:05.000Z",
                   state_since="2026-01-04T03:04:04.000Z"),
            volume(7, "in_sync", condition="abnormal", condition_message="it <burns>"),
            volume(8, "in_sync", resizable="no", resizable_reason="no_route"),
            volume(9, "unbound", removed_at=NOW),
            volume(10, "unknown", "monitor_missing", kind="block_claim"),
            volume(11, "unknown", "none", pv=None),
            volume(12, "detached", pv=None, target_path=None)]
        explained = EXPLAINED | {"remedies": ["do <this>", "or that"], "resize": {"error": "it <fails>", "finished_at": None}}
        page = self.show(volumes, not_resizable=[volumes[7]], sandboxes=[{"sandbox_id": "s", "hypervisor": "qemu"}],
                         answers={"/v1/volumes/6/explain": (200, json.dumps(explained).encode())})
        for words in (
                "11 volumes 1 stalled 4 to look at 1 growing 2 in sync 3 not in use or only observed",
                "Stalled pv-6 block grown agent unsupported for 24 h, tried again in 2 min The reason. do <this> or that "
                "it <fails> crustctl explain 6 To look at pv-3 shrunk for 0 ms The reason. crustctl explain 3 "
                "pv-4 blocked no device for 0 ms The reason. a problem crustctl explain 4",
                "pv-7 in sync for 0 ms crustctl explain 7 pv-10 unknown monitor missing for 0 ms crustctl explain 10 "
                "Would not grow pv-8 in sync for 0 ms no route The obstacle. crustctl explain 8 Volumes Volume State "
                "Host Hypervisor Guest VM pv-6",
                "pv-1 shop/db-0, claim shop/data in sync \u2013 \u2013 \u2013 qemu",
                "pv-10 /dev/loop10, raw block claim unknown monitor missing",
                "pv-2 /dev/loop2, claim shop/data block grown \u2013", "/v/11 /dev/loop11 unknown",
                "key-12 /dev/loop12 detached"):
            self.assertIn(words, page.text)
        table = page.text[page.text.index("Host Hypervisor"):]
        self.assertEqual(re.findall(r"(pv-\d+|/v/\d+|key-\d+) ", table),
                         ["pv-6", "pv-3", "pv-4", "pv-7", "pv-8", "pv-10", "pv-2", "pv-5", "/v/11", "pv-1", "key-12"])
        self.assertEqual([one.get("title") for one in page.all("th") if one["scope"] == "row"][0], "/v/6")
        self.assertEqual(len([one for one in page.all("details") if "open" in one]), 2 + 2 - 1 + 1)

    def test_details_are_explained_when_they_are_opened(self):
        volumes = [volume(number, "blocked", "no_device", stalled=1, condition="abnormal", condition_message="it burns")
                   for number in (1, 2, 3, 4)]
        script = "setTimeout(() => document.querySelectorAll('details')[2].open = true, 3000);"
        page = self.show(volumes, script=script)
        self.assertEqual(sorted(path for path in self.asked if "explain" in path),
                         [f"/v1/volumes/{number}/explain" for number in (1, 2, 3)])
        self.assertIn("pv-3 blocked no device for 0 ms The reason. The guest says that its file system is abnormal: "
                      "it burns crustctl explain 3 pv-4 blocked no device for 0 ms crustctl explain 4", page.text)

    def test_sizes_and_times(self):
        sizes = {1: "1 B", 1023: "1023 B", 3 << 19: "1.5 MiB", 1 << 40: "1 TiB", 12345678: "11.77 MiB",
                 (1 << 63) - 1024: "8 EiB"}
        spans = {"2026-01-05T03:04:05.000Z": "0 ms", "2026-01-05T03:04:04.001Z": "999 ms", "2026-01-05T03:04:01.690Z": "3.3 s",
                 "2026-01-05T03:03:05.001Z": "60 s", "2026-01-05T03:02:05.000Z": "2 min", "2026-01-05T01:04:05.000Z": "2 h",
                 "2026-01-02T03:04:05.000Z": "3 d", "2026-01-09T03:04:05.000Z": "0 ms"}
        volumes = [volume(i, device_bytes=size, hypervisor_bytes=size - 1, guest_bytes=size) for i, size in
                   enumerate(sizes)]
        volumes += [volume(100 + i, "blocked", "no_device", state_since=since) for i, since in enumerate(spans)]
        resizes = [resize(1, 0, hypervisor_at="2026-01-05T01:00:00.120Z", guest_at="2026-01-05T01:00:03.430Z",
                          finished_at="2026-01-05T01:00:03.430Z"),
                   resize(2, 100, state="blocked", reason="no_device", error="it <fails>", pv=None, target_path=None)]
        page = self.show(volumes, resizes)
        for i, (size, text) in enumerate(sizes.items()):
            self.assertRegex(page.text, rf"pv-{i} /dev/loop{i} in sync {re.escape(text)} ")
            self.assertIn({"title": f"{size - size % 2 if size > 1 << 53 else size} bytes"},
                          page.all("span"))
        self.assertIn({"class": "size differs", "data-label": "Hypervisor"}, page.all("td"))
        for i, text in enumerate(spans.values()):
            self.assertIn(f"pv-{100 + i} blocked no device for {text} ", page.text)
        self.assertIn("Recent resizes 2026-01-05 01:00:00 key-100 1 MiB \u2192 2 MiB blocked no device not done yet it <fails> "
                      "2026-01-05 01:00:00 pv-0 1 MiB \u2192 2 MiB in sync hypervisor +120 ms guest +3.3 s metrics",
                      page.text)

    def test_the_page_is_short(self):
        """The stalled one is among those that are shown, although it is the last one."""
        page = self.show([volume(number) for number in range(3999)] + [volume(4000, "blocked", "no_device", stalled=1)])
        self.assertIn("4000 volumes 1 stalled", page.text)
        self.assertIn("and 3800 more: crustctl volumes", page.text)
        self.assertEqual(len(page.all("tr")), 201)
        self.assertIn("Stalled pv-4000", page.text)

    def test_hostile_texts(self):
        """Wherever the API has a text, it is shown as a text."""
        texts = (HOSTILE, "\"' onerror=alert(1) x='", "<img src=x onerror=alert(1)>", "</td></table><b>&lt;", "a\0\n\x1b[0m\x9b|",
                 "javascript:alert(1)", "`${alert(1)}`\\", "x" * 20000, "__proto__", "constructor")
        names = ("pv", "target_path", "key", "device", "problem", "sandbox_id", "reason", "condition_message",
                 "resizable_reason", "pod_namespace", "pod_name", "claim", "next_attempt_at", "state_since")
        stalled, others, obstructed, resizes, sandboxes, answers = [], [], [], [], [], {}
        for i, text in enumerate(texts):
            row = volume(3 * i, "blocked", stalled=1, **dict.fromkeys(names, text))
            stalled.append(row)
            others.append(row | {"volume_id": 3 * i + 1, "stalled": 0, "condition": "abnormal", "state": text})
            obstructed.append(row | {"volume_id": 3 * i + 2, "stalled": 0, "state": "in_sync"})
            resizes.append(resize(i, 3 * i, **dict.fromkeys(("pv", "target_path", "state", "reason", "error",
                                                             "detected_at", "hypervisor_at"), text)))
            sandboxes.append({"sandbox_id": text, "hypervisor": text})
            explained = dict.fromkeys(EXPLAINED, text) | {"remedies": [text], "resize": {"error": text}}
            answers |= {f"/v1/volumes/{3 * i + n}/explain": (200, json.dumps(explained).encode()) for n in range(3)}
        status = {"host": HOSTILE, "version": HOSTILE, "problem": HOSTILE, "degraded": True,
                  "doctor": {"errors": 1, "warnings": 0, "worst": HOSTILE}}
        script = "setTimeout(() => document.querySelectorAll('details').forEach(one => one.open = true), 3000);"
        page = self.show(stalled + others + obstructed, resizes, status, script, obstructed, sandboxes, answers)
        self.assertIn(f"{HOSTILE_SHOWN} crustd {HOSTILE_SHOWN} ", page.text)
        self.assertIn(f"degraded {HOSTILE_SHOWN} doctor errors 1, warnings 0 {HOSTILE_SHOWN} ", page.text)
        for i, text in enumerate(texts):
            shown = re.sub("[\0-\x1f\x7f-\x9f\u202e]", "\ufffd", text)
            told, words = " ".join(shown.split()), " ".join(shown.replace("_", " ").split())
            failure = f"{told} {told} {told} The guest says that its file system is abnormal: {told} crustctl explain"
            for expected in (
                    f"{told} blocked {words} for NaN s {told} {told} {told} crustctl explain {3 * i} ",
                    f"{told} {words} {words} for NaN s {failure} {3 * i + 1} ",
                    f"for NaN s {words} {told} {told} {told} crustctl explain {3 * i + 2} ",
                    f"{told} {told}/{told}, claim {told}/{told} blocked {words} \u2013 \u2013 \u2013 {told} ",
                    f"{told} 1 MiB \u2192 2 MiB {words} {words} "):
                self.assertTrue(expected in page.text, (text[:30], expected[:300]))

    def test_errors(self):
        """What the API refuses is said; what was shown before stays."""
        refused = (429, json.dumps({"code": "RESOURCE_EXHAUSTED", "message": "ask for <fewer> rows"}).encode())
        page = self.show(answers={"/v1/volumes?live=1": refused})
        self.assertIn("ready crustd runs, and sees this node error ask for <fewer> rows", page.text)
        page = self.show(answers={"/v1/status": (500, b"<html>")})
        self.assertIn("error Unexpected token", page.text)
        page = self.show([volume(1, "blocked", "no_device", stalled=1)],
                         answers={"/v1/volumes/1/explain": refused})
        self.assertIn("for 0 ms ask for <fewer> rows crustctl explain 1", page.text)
        self.assertIn("Recent resizes", page.text)

    def test_without_javascript(self):
        """A sandbox takes the page's script away; it reports that."""
        with self.serve({}, "", "sandbox") as url:
            page, _ = Browser(self.scratch).read(url)
        self.assertEqual([path for path in self.asked if path.startswith("/v1")], [])
        self.assertEqual(page.text, "metrics volumes resizes journal doctor")
        instead, = re.findall(r"<noscript>\n(.*)</noscript>", (REPOSITORY / "api/status.html").read_text(), re.S)
        self.assertIn("<code>crustctl status</code>", instead)
        self.assertIn('<a href="/v1/status">', instead)

    def test_faults_of_a_script_are_reported(self):
        """What the other tests rely on."""
        for script in ("nowhere();", "console.error('reported');"):
            with self.serve({}, script) as url:
                self.assertNotEqual(Browser(tempfile.mkdtemp(dir=self.scratch)).read(url)[1], [])
