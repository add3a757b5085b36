// Proposed changes and changed definitions: copying, and no second click while a request is in flight.
"use strict";

(() => {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const text = [...document.querySelectorAll(button.dataset.copy)].map((one) => one.value).join("\n");
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // Without permission, the text is shown, selected.
      for (const area of document.querySelectorAll(button.dataset.copy)) {
        area.hidden = false;
        area.select();
      }
      button.textContent = "Copy the selected text";
    }
    setTimeout(() => (button.textContent = label), 2000);
  });
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (event.target.dataset.sent) return event.preventDefault();
    event.target.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });
})();
