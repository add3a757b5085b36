// The script of the admin UI: refreshes views on changes, loads rows of the matrix as they are needed,
// handles keyboard navigation, and opens explanations. All texts come from the server, escaped.
"use strict";

(() => {
  // A visible view is notified of changes. A browser allows few connections per host, so a page has one
  // event stream, which also delivers decisions to the Live view, and closes it in the background.
  let events = null;
  let missed = false;
  // The version that the view shows: later changes are delivered as soon as the stream opens.
  let { seen } = document.body.dataset;
  const address = () => {
    const rows = document.getElementById("rows");
    const asked = new URLSearchParams(rows?.dataset.wanted);
    if (rows) asked.set("after", rows.dataset.after);
    if (seen) asked.set("seen", seen);
    return `${rows ? "live/events" : "events"}?${asked}`;
  };
  const follow = (pause = 2000) => {
    if (document.hidden || events) return;
    const said = document.getElementById("connection");
    const own = new EventSource(address());
    events = own;
    own.addEventListener("changed", (event) => {
      seen = event.data;
      htmx.trigger(document.body, "changed");
    });
    document.dispatchEvent(new CustomEvent("stream", { detail: own }));
    own.onopen = () => {
      said.textContent = "";
      said.classList.remove("lost");
      if (missed) htmx.trigger(document.body, "changed");
      missed = false;
      pause = 2000;
    };
    own.onerror = () => {
      missed = true;
      said.textContent = "not connected";
      said.classList.add("lost");
      // The browser does not reconnect after an error response; a restarted gateway may accept the connection.
      if (own.readyState !== EventSource.CLOSED || events !== own) return;
      events = null;
      setTimeout(() => follow(Math.min(2 * pause, 60000)), pause);
    };
  };
  const leave = () => {
    events?.close();
    events = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", () => follow());

  // A view that is replaced cannot request a refresh for changes that arrive before its own response:
  // htmx drops requests of removed elements. Its replacement requests it.
  let changes = 0;
  const sent = new WeakMap();
  document.addEventListener("changed", () => { changes += 1; }, true);
  document.addEventListener("htmx:beforeRequest", (event) => sent.set(event.detail.xhr, changes));
  document.addEventListener("htmx:afterSettle", ({ detail: { xhr, target } }) => {
    if (!xhr || target.isConnected || !(sent.get(xhr) < changes)) return;
    sent.delete(xhr);
    htmx.trigger(document.body, "changed");
  });

  // After a 401, the login form is shown. If a request fails, the old content of its target is replaced
  // by the error, because it answers another request.
  const failed = (event) => {
    const { target, xhr } = event.detail;
    if (xhr.status === 401) return location.reload();
    if (!["panel-body", "told", "answer"].includes(target.id)) return;
    const said = document.createElement("p");
    said.className = "wrong";
    said.textContent = xhr.status ? `The request failed with status ${xhr.status}.` : "The gateway does not respond.";
    target.replaceChildren(said);
  };
  document.addEventListener("htmx:responseError", failed);
  document.addEventListener("htmx:sendError", failed);

  const CHUNK = 64;
  const $ = (id) => document.getElementById(id);
  // The keyboard position: a row number and a column.
  let at = { line: null, column: 0 };
  let watcher = null;

  const rowHeight = () => parseFloat(getComputedStyle($("grid")).getPropertyValue("--row")) || 30;

  // Rows contain nothing for htmx to process, and there are many: they are inserted directly.
  const load = (chunk) => {
    if (chunk.childElementCount || chunk.loading) return chunk.loading || Promise.resolve();
    const filter = $("scroll").dataset.filter;
    const address = `rows?from=${chunk.dataset.from}${filter ? "&" + filter : ""}`;
    chunk.stop = new AbortController();
    chunk.loading = fetch(address, { headers: { "HX-Request": "true" }, signal: chunk.stop.signal })
      .then((answer) => {
        if (answer.status === 401) location.reload();
        return answer.ok ? answer.text() : "";
      })
      .then((lines) => { if (chunk.near || chunk.wanted) chunk.innerHTML = lines; })
      .catch(() => {})
      .then(() => {
        chunk.loading = null;
        reachable();
      });
    return chunk.loading;
  };

  const begin = () => {
    const scroll = $("scroll");
    if (!scroll || scroll.begun) return;
    scroll.begun = true;
    watcher?.disconnect();
    const near = (entries) => {
      for (const { target: chunk, isIntersecting } of entries) {
        chunk.near = isIntersecting;
        clearTimeout(chunk.timer);
        // Rows that are scrolled past quickly are not requested.
        if (isIntersecting) chunk.timer = setTimeout(() => chunk.near && load(chunk), chunk.childElementCount ? 0 : 40);
        else if (chunk.loading && !chunk.wanted) chunk.stop.abort();
        else if (!chunk.loading && !chunk.contains(document.activeElement)) chunk.replaceChildren();
      }
    };
    watcher = new IntersectionObserver(near, { root: scroll, rootMargin: "1200px 0px" });
    for (const chunk of scroll.querySelectorAll(".chunk")) {
      const count = Number(chunk.dataset.count);
      if (count < CHUNK) chunk.style.height = `${count * rowHeight()}px`;
      watcher.observe(chunk);
    }
    reachable();
  };

  // One element of the table is in the tab order: a cell, a server row or a column header.
  const PLACES = "i, a.fold, .c a";
  const reachable = () => {
    const grid = $("grid");
    if (!grid || grid.querySelector("[tabindex='0']")) return;
    const first = grid.querySelector(".r i") ?? grid.querySelector("a.fold");
    if (first) first.tabIndex = 0;
  };

  // The header row is line -1.
  const lineOf = (row) => Number(row.getAttribute("aria-rowindex")) - 2;
  const cellsOf = (row) => row.querySelectorAll(PLACES);
  const rowAt = (line) => $("grid").querySelector(`[aria-rowindex="${line + 2}"]`);

  const focusCell = (row, column) => {
    const cells = cellsOf(row);
    const cell = cells[Math.max(0, Math.min(column, cells.length - 1))];
    if (!cell) return;
    for (const old of $("grid").querySelectorAll("[tabindex='0']")) old.tabIndex = -1;
    cell.tabIndex = 0;
    cell.focus({ preventScroll: true });
    // A server row has one element: the column of the cells above and below is kept.
    at = { line: lineOf(row), column: row.classList.contains("g") ? Math.max(0, column) : [...cells].indexOf(cell) };
    if (!row.classList.contains("head")) reveal(cell);
  };

  // Scrolls so that neither the header row nor the tool column covers the cell.
  const reveal = (cell) => {
    const scroll = $("scroll");
    const view = scroll.getBoundingClientRect();
    const box = cell.getBoundingClientRect();
    const top = view.top + scroll.querySelector(".head").offsetHeight;
    const left = view.left + scroll.querySelector(".head .t").offsetWidth;
    if (box.top < top) scroll.scrollTop -= top - box.top;
    else if (box.bottom > view.top + scroll.clientHeight) scroll.scrollTop += box.bottom - view.top - scroll.clientHeight;
    if (cell.matches("a.fold")) return;
    if (box.left < left) scroll.scrollLeft -= left - box.left;
    else if (box.right > view.left + scroll.clientWidth) scroll.scrollLeft += box.right - view.left - scroll.clientWidth;
  };

  // Moves the focus to a row, loading it if needed and skipping rows that cannot have the focus.
  const go = async (line, step, column) => {
    const lines = Number($("scroll").dataset.lines);
    if (line === -1) return focusCell(rowAt(-1), column);
    for (let tries = 0; line >= 0 && line < lines && tries < 200; line += step, tries++) {
      const chunk = $("grid").querySelectorAll(".chunk")[Math.floor(line / CHUNK)];
      if (!chunk) return;
      chunk.wanted = true;
      await load(chunk);
      chunk.wanted = false;
      const row = rowAt(line);
      if (row && cellsOf(row).length) return focusCell(row, column);
    }
  };

  const keys = (event) => {
    const cell = event.target.closest?.("#grid :is(i, a.fold, .c a)");
    if (!cell || event.altKey || event.metaKey) return;
    const row = cell.closest("[role='row']");
    const server = row.classList.contains("g");
    const column = server ? at.column : [...cellsOf(row)].indexOf(cell);
    const line = lineOf(row);
    const last = Number($("scroll").dataset.lines) - 1;
    const page = Math.max(1, Math.floor($("scroll").clientHeight / rowHeight()) - 2);
    const moves = {
      ArrowDown: () => go(line + 1, 1, column),
      ArrowUp: () => go(line - 1, -1, column),
      ArrowRight: () => (server ? expand(row, true) : focusCell(row, column + 1)),
      ArrowLeft: () => (server ? expand(row, false) : focusCell(row, column - 1)),
      PageDown: () => go(Math.min(last, line + page), 1, column),
      PageUp: () => go(Math.max(0, line - page), line > page ? -1 : 1, column),
      Home: () => (event.ctrlKey ? go(0, 1, 0) : !server && focusCell(row, 0)),
      End: () => (event.ctrlKey ? go(last, -1, 1e6) : !server && focusCell(row, 1e6)),
      Enter: () => choose(cell),
      " ": () => choose(cell),
    };
    const move = moves[event.key];
    // Enter follows the link in a column header.
    if (!move || (event.key === "Enter" && cell.matches(".c a"))) return;
    event.preventDefault();
    move();
  };

  // Shows the table at another address, for example with a server collapsed.
  const show = (address) => htmx.ajax("GET", address, { target: "#matrix", swap: "outerHTML" }).then(() => {
    if (!$("matrix")) return;
    // htmx restores only addresses with its mark, which the first one lacks.
    history.replaceState({ htmx: true }, "", location.href);
    history.pushState({ htmx: true }, "", address);
  });

  const expand = (row, open) => {
    if (row.getAttribute("aria-expanded") !== String(open)) fold(row);
  };

  const fold = (row) => {
    focusCell(row, at.column);
    show(row.querySelector("a.fold").getAttribute("href"));
  };

  const choose = (cell) => {
    if (cell.matches("i")) return explain(cell);
    if (cell.matches("a.fold")) return fold(cell.closest(".g"));
    cell.click();
  };

  const agentOf = (cell) => {
    const column = [...cellsOf(cell.parentElement)].indexOf(cell);
    return $("grid").querySelectorAll(".head .c")[column]?.dataset.agent ?? "";
  };

  let opened = null;

  // Requests the open explanation, and shows it or the error.
  const tell = (shown) => {
    const own = opened;
    const show = () => {
      if (opened !== own) return;
      $("panel").hidden = false;
      shown?.();
    };
    htmx.ajax("GET", `explain?${own.asked}`, { target: "#panel-body", swap: "innerHTML" }).then(show, show);
  };

  const explain = (cell) => {
    const { server, tool, kind } = cell.parentElement.dataset;
    // The data attributes are already URL-encoded.
    const asked = `agent=${agentOf(cell)}&server=${server}&tool=${tool}${kind ? `&kind=${kind}` : ""}`;
    $("grid").querySelector("i.open")?.classList.remove("open");
    cell.classList.add("open");
    focusCell(cell.parentElement, [...cellsOf(cell.parentElement)].indexOf(cell));
    opened = { asked, column: at.column, line: at.line };
    tell(() => { $("panel").scrollTop = 0; reveal(cell); });
  };

  // An open explanation is requested again after a change.
  document.body.addEventListener("changed", () => { if (opened) tell(); });

  const close = () => {
    const panel = $("panel");
    if (!panel || panel.hidden) return false;
    panel.hidden = true;
    const cell = $("grid")?.querySelector("i.open");
    cell?.classList.remove("open");
    if (cell) cell.focus();
    else if (opened) go(opened.line, 1, opened.column);
    opened = null;
    return true;
  };

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      const pick = document.querySelector("details.pick[open]");
      if (pick) { pick.open = false; pick.querySelector("summary").focus(); }
      else if (close()) event.preventDefault();
      return;
    }
    if (event.key === "/" && !event.target.closest("input, textarea, select") && $("q")) {
      event.preventDefault();
      $("q").focus();
      return;
    }
    keys(event);
  });

  document.addEventListener("click", (event) => {
    const cell = event.target.closest("#grid .r i");
    if (cell) return explain(cell);
    const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey;
    const headline = plain && event.target.closest("#grid a.fold");
    if (headline) {
      event.preventDefault();
      return fold(headline.closest(".g"));
    }
    const link = plain && event.target.closest("#fold-all, #changed");
    if (link) {
      event.preventDefault();
      return void show(link.getAttribute("href")).then(() => $(link.id)?.focus());
    }
    if (event.target.closest("#panel-close")) return void close();
    for (const pick of document.querySelectorAll("details.pick[open]")) {
      if (!pick.contains(event.target)) pick.open = false;
    }
  });

  // Highlights the column header of the cell under the pointer.
  let pointed = null;
  document.addEventListener("mouseover", (event) => {
    const cell = event.target.closest?.("#grid .r i");
    const column = cell && [...cellsOf(cell.parentElement)].indexOf(cell);
    const now = cell ? $("grid").querySelectorAll(".head .c")[column] : null;
    if (now === pointed) return;
    pointed?.classList.remove("here");
    now?.classList.add("here");
    pointed = now;
  });

  // Expanded details stay expanded when a view is replaced.
  let unfolded = [];
  document.addEventListener("htmx:beforeSwap", (event) => {
    unfolded = [...event.detail.target.querySelectorAll("details[open][id]:not(.pick)")].map((one) => one.id);
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const id of unfolded) $(id)?.setAttribute("open", "");
    unfolded = [];
  });

  // A table that is replaced keeps its scroll position, its focus and its open filters.
  let kept = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const matrix = $("matrix");
    if (!matrix || event.detail.target !== matrix) return;
    const scroll = $("scroll");
    const focused = document.activeElement?.closest?.("#grid") ? { ...at } : null;
    // Collapsing a server changes the address; the focus stays on its row.
    if (focused) focused.server = document.activeElement.closest(".g")?.dataset.server;
    kept = {
      filter: scroll.dataset.filter,
      typed: $("q").value,
      top: scroll.scrollTop,
      left: scroll.scrollLeft,
      open: [...document.querySelectorAll("details.pick[open]")].map((pick) => pick.id),
      focused,
    };
  });
  document.addEventListener("htmx:afterSwap", () => {
    begin();
    if (!kept || !$("matrix")) return;
    const { filter, typed, top, left, open, focused } = kept;
    kept = null;
    for (const id of open) { const pick = $(id); if (pick) pick.open = true; }
    // Text that was typed before the response arrived is searched for next.
    if (document.activeElement === $("q") && $("q").value !== typed) {
      $("q").value = typed;
      // htmx attaches the new form's listeners when it settles: an event before that is lost.
      document.addEventListener("htmx:afterSettle", () => $("q")?.dispatchEvent(new Event("input", { bubbles: true })), { once: true });
    }
    if ($("scroll").dataset.filter !== filter && focused?.server === undefined) return;
    $("scroll").scrollLeft = left;
    $("scroll").scrollTop = top;
    if (focused) go(focused.line, 1, focused.column);
  });

  // A chosen file fills a text field. It is sent only with the form.
  document.addEventListener("change", async (event) => {
    const field = event.target.dataset?.fills;
    const file = field && event.target.files?.[0];
    if (file) $(field).value = await file.text();
  });

  begin();
  // Scripts of views are loaded after this one, and listen for the stream.
  document.addEventListener("DOMContentLoaded", () => follow());
})();
