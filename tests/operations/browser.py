# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium with one page, controlled by the DevTools protocol over a pipe."""
import json
import os
import shlex
import shutil
import subprocess
import tempfile


def program():
    """Returns the path of Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="sluice-browser-")
        words = [program(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", f"--user-data-dir={self.profile.name}",
                 "--remote-debugging-pipe", "about:blank"]
        hears, self.to = os.pipe()
        self.out, says = os.pipe()
        self.process = subprocess.Popen(["bash", "-c", f"exec {shlex.join(words)} 3<&{hears} 4>&{says}"], pass_fds=(hears, says),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.profile.name})
        os.close(hears)
        os.close(says)
        self.received = b""
        self.numbers = 0
        self.session = None
        self.asked = []  # addresses of all requests of the page
        self.complaints = []  # console messages of the page, and of the browser about the page
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Log", "Runtime", "Page"):
            self.call(f"{domain}.enable")

    def message(self):
        while b"\0" not in self.received:
            more = os.read(self.out, 1 << 16)
            assert more, "the browser has ended"
            self.received += more
        text, self.received = self.received.split(b"\0", 1)
        return json.loads(text)

    def note(self, event):
        details = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.asked.append(details["request"]["url"])
        elif event.get("method") == "Log.entryAdded":
            self.complaints.append(details["entry"]["text"])
        elif event.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(details))

    def call(self, method, **parameters):
        self.numbers += 1
        request = {"id": self.numbers, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while (answer := self.message()).get("id") != self.numbers:
            self.note(answer)
        assert "result" in answer, answer
        return answer["result"]

    def value(self, expression):
        """Returns the value of a JavaScript expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def text(self, selector):
        """Returns the visible text of an element."""
        return self.value(f"document.querySelector({json.dumps(selector)}).innerText")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        os.close(self.to)
        os.close(self.out)
        self.profile.cleanup()
