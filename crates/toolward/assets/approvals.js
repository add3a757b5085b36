// The queue of approvals: keyboard, and updates that do not interrupt a person who is deciding.
"use strict";

(() => {
  const $ = (id) => document.getElementById(id);
  // A key that is pressed this soon after a ticket appears was not meant for it.
  const TOO_SOON = 500;
  const appeared = new Map();
  let selected = null;
  // A decision was sent, and its result is about to be shown.
  let leaving = false;

  const tickets = () => [...document.querySelectorAll(".ticket")];
  const note = () => {
    const now = performance.now();
    for (const ticket of tickets()) if (!appeared.has(ticket.id)) appeared.set(ticket.id, now);
  };
  const select = (ticket) => {
    if (!ticket) return;
    for (const one of tickets()) one.classList.toggle("selected", one === ticket);
    selected = ticket.id;
    ticket.focus({ preventScroll: true });
    ticket.scrollIntoView({ block: "nearest" });
  };
  const busy = () => {
    const queue = $("queue");
    const used = document.activeElement;
    if (queue.contains(used) && used.matches("input, select")) return true;
    return [...queue.querySelectorAll("input[name=reason]")].some((input) => input.value) ||
      [...queue.querySelectorAll("input[type=radio]")].some((input) => input.checked !== input.defaultChecked) ||
      queue.querySelector("details[open]") !== null;
  };
  const refresh = async (wanted) => {
    const answer = await fetch("approvals", { headers: { "HX-Request": "true" } }).catch(() => null);
    if (answer?.status === 401) return location.reload();
    if (!answer?.ok) return;
    const text = await answer.text();
    // Someone may have begun to decide since the request was sent.
    if (leaving) return;
    if (!wanted && busy()) return void ($("arrived").hidden = false);
    $("queue").outerHTML = text;
    htmx.process($("queue"));
    note();
    if (selected) {
      const again = $(selected);
      if (again) select(again);
    }
  };
  document.body.addEventListener("changed", () => {
    if (leaving) return;
    if (busy()) $("arrived").hidden = false;
    else refresh(false);
  });
  document.addEventListener("click", (event) => {
    if (event.target.id === "refresh") refresh(true);
  });
  document.addEventListener("submit", () => (leaving = true));
  window.addEventListener("pageshow", () => (leaving = false));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea")) return;
    const all = tickets();
    const at = all.findIndex((ticket) => ticket.id === selected);
    const current = all[at];
    if (event.key === "j") select(all[Math.min(at + 1, all.length - 1)]);
    else if (event.key === "k") select(all[Math.max(at - 1, 0)]);
    else if (event.key === "a" || event.key === "d") {
      if (!current || performance.now() - appeared.get(current.id) < TOO_SOON || event.repeat) return;
      if (event.key === "d") return event.preventDefault(), current.querySelector("input[name=reason]")?.focus();
      const call = current.querySelector("input[value=call]");
      if (!call) return;
      call.checked = true;
      current.querySelector("button[value=approve]").click();
    } else return;
    event.preventDefault();
  });
  note();
})();
