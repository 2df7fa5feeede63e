"""What operators.py and queues.py need of a cluster: a quick client, watches that note times, the audit log, /proc's figures.

Times are CLOCK_MONOTONIC, which is one clock for all processes of the machine. No wait here is without a deadline.
"""

import http.client
import json
import multiprocessing
import os
import ssl
import threading
import time
import urllib.parse

REQUEST_SECONDS = 60
WRITES = ("create", "update", "patch", "delete", "deletecollection")


class LoadError(Exception):
    """The load could not be made, or was not served in time; the text says what."""


class Api:
    """Requests to the API server as one user; every thread has a connection of its own."""

    def __init__(self, url, ca_file, certificate, key):
        self.host = urllib.parse.urlparse(url).netloc
        self.context = ssl.create_default_context(cafile=ca_file)
        self.context.load_cert_chain(certificate, key)
        self.local = threading.local()

    def connection(self):
        return http.client.HTTPSConnection(self.host, timeout=REQUEST_SECONDS, context=self.context)

    def request(self, method, path, body=None, content_type="application/json"):
        """(status, body as bytes); a connection that the server closed is opened once more."""
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(2):
            if getattr(self.local, "connection", None) is None:
                self.local.connection = self.connection()
            try:
                self.local.connection.request(method, path, data, {"Content-Type": content_type})
                answer = self.local.connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                self.local.connection = None
                if attempt:
                    raise
        raise AssertionError

    def call(self, method, path, body=None, content_type="application/json"):
        """The answer as an object; LoadError when it is refused."""
        status, text = self.request(method, path, body, content_type)
        if status >= 300:
            raise LoadError(f"{method} {path}: {status} {text[:300].decode(errors='replace')}")
        return json.loads(text)

    def names(self, path):
        """Names of every object of a list."""
        found, more = [], ""
        while True:
            page = self.call("GET", f"{path}?limit=500&continue={more}")
            found += [one["metadata"]["name"] for one in page["items"]]
            more = page["metadata"].get("continue", "")
            if not more:
                return found


class _Shared:
    """One list that several threads take from."""

    def __init__(self, requests):
        self.left, self.lock = iter(requests), threading.Lock()

    def __iter__(self):
        return self

    def __next__(self):
        with self.lock:
            return next(self.left)


def _streams(api, streams, answers):
    """In a process of its own, so that the watches of the caller lose no time to it; a thread for each stream."""
    began, failures = {}, []

    def work(pause, requests):
        for name, method, path, body, content_type in requests:
            if failures:
                return
            if pause:
                time.sleep(pause)
            began.setdefault(name, time.monotonic())
            try:
                status, text = api.request(method, path, body, content_type)
                if status >= 300 and not (method == "DELETE" and status == 404):
                    failures.append(f"{method} {path}: {status} {text[:300].decode(errors='replace')}")
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{method} {path}: {error}")

    workers = [threading.Thread(target=work, args=stream) for stream in streams]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    answers.send((began, failures[:3], time.monotonic()))


class StreamLoad:
    """Streams of requests, each from a client of its own: (seconds before every request, [(name, method, path, body,
    content type)])."""

    def __init__(self, api, streams):
        context = multiprocessing.get_context("fork")
        self.answers, sender = context.Pipe(False)
        self.process = context.Process(target=_streams, args=(api, streams, sender), daemon=True)
        self.process.start()
        sender.close()

    def wait(self, seconds):
        """(name -> when its first request was sent, when all were answered)."""
        try:
            if not self.answers.poll(seconds):
                raise LoadError(f"the load was not taken in {seconds:.0f} s")
            began, failures, ended = self.answers.recv()
        except EOFError:
            raise LoadError("the load's process died") from None
        finally:
            if self.process.is_alive():
                self.process.join(5)
                self.process.kill()
        if failures:
            raise LoadError("; ".join(failures))
        return began, ended


class Load(StreamLoad):
    """Requests at full speed from `threads` clients, each of which takes the next one."""

    def __init__(self, api, requests, threads):
        shared = _Shared(requests)
        super().__init__(api, [(0, shared)] * threads)


class Watch(threading.Thread):
    """Follows one kind; calls `note(now, type, object)`. A watch that the server closes is opened again."""

    def __init__(self, api, path, note):
        super().__init__(daemon=True)
        self.api, self.path, self.note = api, path, note
        self.ended = False
        self.failure = None
        self.version = api.call("GET", f"{path}?limit=1")["metadata"]["resourceVersion"]
        self.start()

    def run(self):
        while not self.ended:
            connection = self.api.connection()
            try:
                connection.request("GET", f"{self.path}?watch=1&allowWatchBookmarks=1&resourceVersion={self.version}")
                answer = connection.getresponse()
                if answer.status != 200:
                    raise LoadError(f"watch {self.path}: {answer.status}")
                self.follow(answer)
            except (TimeoutError, http.client.HTTPException):
                continue  # Silence: nothing was missed, the version says where to go on.
            except Exception as error:  # pylint: disable=broad-except
                self.failure = f"watch {self.path}: {error}"
                return
            finally:
                connection.close()

    def follow(self, answer):
        while not self.ended:
            line = answer.readline()
            if not line:
                return
            now = time.monotonic()
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise LoadError(f"watch {self.path}: {event['object'].get('message')}")
            self.version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self.note(now, event["type"], event["object"])


class Audit:
    """Sums of the audit log's writes from one place on."""

    def __init__(self, path):
        self.path = path
        self.begin()

    def begin(self):
        self.offset = os.path.getsize(self.path) if os.path.exists(self.path) else 0

    def writes(self):
        """The records of writes from there on."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                record = json.loads(line)
                if record["verb"] in WRITES:
                    yield record

    def sums(self):
        """writer -> {"verb resource[/subresource]": accepted writes}, and the same of refused ones with their code."""
        return sums_of(self.writes())


def sums_of(records):
    written, refused = {}, {}
    for record in records:
        code = record["responseStatus"]["code"]
        what = written_what(record) + (f" {code}" if code >= 400 else "")
        of_user = (refused if code >= 400 else written).setdefault(record["user"]["username"], {})
        of_user[what] = of_user.get(what, 0) + 1
    return written, refused


def written_what(record):
    """"verb resource[/subresource]"."""
    reference = record.get("objectRef", {})
    return f"{record['verb']} " + "/".join(filter(None, [reference.get("resource"), reference.get("subresource")]))


def process_figures(pid):
    """CPU seconds since its start, resident and peak resident MiB."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    figures = {"cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")}
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("VmRSS", "VmHWM")):
                figures["rss_mib" if line.startswith("VmRSS") else "peak_mib"] = int(line.split()[1]) / 1024
    return figures
