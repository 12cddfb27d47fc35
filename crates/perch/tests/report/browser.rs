//! A headless Chromium, driven through the pipes of its DevTools protocol.

use serde_json::{Value, json};
use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// However busy the machine is.
const LIMIT: Duration = Duration::from_secs(120);

/// What a page may do that it must not: errors, messages on the console, dialogs.
const TROUBLE: [&str; 4] = [
    "Runtime.exceptionThrown",
    "Runtime.consoleAPICalled",
    "Log.entryAdded",
    "Page.javascriptDialogOpening",
];

/// The browser's program, if there is one.
pub fn installed() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let files =
        std::env::split_paths(&folders).flat_map(|folder| names.map(|name| folder.join(name)));
    files.into_iter().find(|file| file.is_file())
}

/// A browser with one page.
pub struct Browser {
    child: Child,
    commands: File,
    messages: Receiver<Value>,
    number: u64,
    session: Option<String>,
    /// What the page did that it must not.
    pub trouble: Vec<Value>,
    /// Addresses that were loaded.
    pub loaded: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Browser {
    /// Starts it.
    pub fn start(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["in", "out"] {
            let made = Command::new("mkfifo").arg(path(name)).status();
            assert!(made.unwrap().success());
        }
        // It reads commands from descriptor 3 and answers on descriptor 4. Its sandbox does not work for root.
        let script = "program=$1; shift; exec \"$program\" \"$@\" 3<\"$IN\" 4>\"$OUT\"";
        let child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", path("profile").display()))
            .env("HOME", folder.path())
            .env("IN", path("in"))
            .env("OUT", path("out"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // In the shell's order: opening a FIFO waits for its other end.
        let commands = File::options().write(true).open(path("in")).unwrap();
        let answers = File::open(path("out")).unwrap();
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(answers).split(0) {
                let Ok(message) = message else { break };
                let message = serde_json::from_slice(&message).unwrap();
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self {
            child,
            commands,
            messages,
            number: 0,
            session: None,
            trouble: Vec::new(),
            loaded: Vec::new(),
            _folder: folder,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method of the protocol; its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.commands.write_all(&bytes).unwrap();
        loop {
            let message = self.messages.recv_timeout(LIMIT);
            let mut message = message.unwrap_or_else(|why| panic!("no answer to {method}: {why}"));
            if message["id"] == json!(self.number) {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            let event = message["method"].as_str().unwrap_or_default();
            if event == "Network.requestWillBeSent" {
                let address = message["params"]["request"]["url"].as_str();
                self.loaded.push(address.unwrap_or_default().to_owned());
            } else if TROUBLE.contains(&event) {
                self.trouble.push(message);
            }
        }
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let ask = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", ask);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].take()
    }

    /// The same as text.
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        let text = value.as_str().map(str::to_owned);
        text.unwrap_or_else(|| panic!("{expression}: {value}"))
    }

    /// Waits until an expression is true in the page.
    pub fn until(&mut self, expression: &str) {
        let start = Instant::now();
        while self.value(expression) != json!(true) {
            assert!(start.elapsed() < LIMIT, "never true: {expression}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens a file, with what follows the `#` in its address.
    pub fn open(&mut self, file: &Path, fragment: &str) {
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.until("location.href === 'about:blank'");
        let url = format!("file://{}#{fragment}", file.display());
        self.call("Page.navigate", json!({ "url": url }));
        self.until("location.protocol === 'file:' && document.readyState === 'complete'");
    }

    /// Waits until the page has drawn what it was asked for.
    pub fn drawn(&mut self) {
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))");
    }

    /// The middle of an element, which is scrolled into sight, and its width.
    pub fn place(&mut self, selector: &str) -> [f64; 3] {
        let selector = json!(selector);
        let place = self.value(&format!(
            "(() => {{ const e = document.querySelector({selector}); e.scrollIntoView({{ block: 'center' }}); \
             const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2, r.width]; }})()"
        ));
        [0, 1, 2].map(|at| place[at].as_f64().unwrap())
    }

    /// Moves the mouse, or presses or releases its left button. `keys` are 2 for Ctrl and 8 for Shift.
    pub fn mouse(&mut self, event: &str, [x, y]: [f64; 2], keys: u32) {
        let held = u32::from(event != "mouseReleased");
        let what = json!({
            "type": event, "x": x, "y": y, "button": "left", "buttons": held, "clickCount": 1, "modifiers": keys,
        });
        self.call("Input.dispatchMouseEvent", what);
    }

    /// Turns the wheel, away from the user if `by` is below 0.
    pub fn wheel(&mut self, [x, y]: [f64; 2], by: f64, keys: u32) {
        let what = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": by, "modifiers": keys });
        self.call("Input.dispatchMouseEvent", what);
        self.drawn();
    }

    /// Clicks on an element.
    pub fn click(&mut self, selector: &str) {
        let [x, y, _] = self.place(selector);
        self.mouse("mousePressed", [x, y], 0);
        self.mouse("mouseReleased", [x, y], 0);
        self.drawn();
    }

    /// Presses a key, by its name in JavaScript.
    pub fn key(&mut self, key: &str, keys: u32) {
        let text = if key.len() == 1 { key } else { "" };
        let down = json!({ "type": "keyDown", "key": key, "text": text, "modifiers": keys });
        self.call("Input.dispatchKeyEvent", down);
        let up = json!({ "type": "keyUp", "key": key, "modifiers": keys });
        self.call("Input.dispatchKeyEvent", up);
        self.drawn();
    }

    /// A window of that size, in light or dark colours.
    pub fn window(&mut self, (width, height): (u32, u32), scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", feature);
    }

    /// The texts of a column of a table, from its first row on.
    pub fn column(&mut self, table: &str, key: &str) -> Vec<String> {
        let cells = self.value(&format!(
            "(() => {{ const at = [...document.querySelectorAll('#{table} th')].findIndex(of => of.dataset.key === '{key}'); \
             return [...document.querySelectorAll('#{table} tbody tr')].map(row => row.children[at].textContent); }})()"
        ));
        serde_json::from_value(cells).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
