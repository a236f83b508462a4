"use strict";
(() => {
  const board = document.getElementById("board");
  const state = document.getElementById("state");
  const news = document.getElementById("news");
  // The server's clock, carried on by one of this machine that nobody sets.
  let then = Number(board.dataset.now), since = performance.now();
  const now = () => then + performance.now() - since;

  const words = (ms) => {
    const seconds = Math.max(0, Math.floor(ms / 1000));
    const hours = Math.floor(seconds / 3600), minutes = Math.floor((seconds % 3600) / 60);
    const two = (n) => String(n).padStart(2, "0");
    if (hours >= 24) return `${Math.floor(hours / 24)}d ${hours % 24}h`;
    if (hours) return `${hours}h ${two(minutes)}m`;
    return minutes ? `${minutes}m ${two(seconds % 60)}s` : `${seconds}s`;
  };
  const tick = () => {
    const at = now();
    for (const one of board.querySelectorAll("[data-ends]")) {
      const left = one.dataset.way === "left", ms = Number(one.dataset.ends) - at;
      const said = `${words(left ? ms : -ms)} ${one.dataset.way}`;
      if (one.textContent !== said) one.textContent = said;
      const bar = left && one.parentElement.querySelector("progress");
      if (bar) bar.value = Math.max(0, ms);
    }
  };
  const fragment = (html) => {
    const made = document.createElement("template");
    made.innerHTML = html;
    return made.content;
  };
  const show = (told) => {
    then = told.now;
    since = performance.now();
    const focused = board.contains(document.activeElement) && document.activeElement.id;
    board.replaceChildren(fragment(told.board));
    if (focused) document.getElementById(focused)?.focus();
    document.getElementById("counts").replaceChildren(fragment(told.counts));
    const asof = document.getElementById("asof");
    asof.textContent = asof.dateTime = told.at;
    const known = new Set([...news.children].map((item) => item.dataset.key));
    const keys = new Set();
    const fresh = [...fragment(told.news).children].filter((item) => {
      keys.add(item.dataset.key);
      return !known.has(item.dataset.key);
    });
    for (const item of fresh) item.className += " new";
    for (const item of [...news.children]) if (!keys.has(item.dataset.key)) item.remove();
    news.prepend(...fresh);
    state.textContent = told.trouble;
    tick();
  };
  let stream = null, over = false;
  const again = async () => {
    const { status } = await fetch(location.pathname, { method: "HEAD" }).catch(() => ({}));
    over = status === 401 || status === 403;
    if (!over) setTimeout(connect, 3000);
    state.textContent = over
      ? "Not live: this page may not ask any more. Where the gateway runs, gitlease board --web opens another."
      : "Not live: load the page again if this stays.";
  };
  const connect = () => {
    stream?.close();
    stream = null;
    // Browsers have few connections to a host: a tab that nobody sees takes none.
    if (document.hidden || over) return;
    stream = new EventSource(board.dataset.stream);
    stream.addEventListener("board", (event) => show(JSON.parse(event.data)));
    stream.onerror = () => {
      state.textContent = "Not live: the gateway does not answer. Trying again…";
      if (stream?.readyState === EventSource.CLOSED) again();
    };
  };
  tick();
  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", connect);
  connect();
})();
