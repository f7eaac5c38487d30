// @ts-check
// Actions: a button that explains why it is disabled, a confirmation with the equivalent command, and the result.
import { h, fill, setText } from "./dom.js";
import { isAdmin, isEditor } from "../core/session.js";

/** The equivalent command, with a button to copy it. @param {string} text */
export function command(text) {
  const code = h("code", { tabIndex: 0 }, text);
  const copy = h("button", { class: "quiet", aria: { label: "Copy the command" }, onclick: async () => {
    // Over plain HTTP from another host there is no clipboard, and a browser may refuse it: then the text is selected.
    const copied = await navigator.clipboard?.writeText(code.textContent ?? "").then(() => true, () => false);
    if (!copied) getSelection()?.selectAllChildren(code);
    setText(copy, copied ? "Copied" : "Selected: press Ctrl+C");
    setTimeout(() => setText(copy, "Copy"), 1500);
  } }, "Copy");
  const element = h("div", { class: "command" }, code, copy);
  element.set = (/** @type {string} */ now) => setText(code, now);
  return element;
}

/** A word quoted for a shell, as an address may have come from anyone. @param {string} word */
export const shellQuote = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

export const notEditor = () => (isEditor() ? "" : "Requires an editor of the project");
export const notAdmin = () => (isAdmin() ? "" : "Requires an admin: it affects all projects");

/** Why the value of a field cannot be sent, "" if it can: an empty number would be sent as 0. @param {...HTMLInputElement} inputs */
export function invalidInput(...inputs) {
  const found = inputs.find((input) => !input.checkValidity());
  return found ? `${found.labels?.[0]?.textContent ?? found.name}: ${found.validationMessage}` : "";
}

/**
 * @typedef {{label: string, does: string, command: string, run: () => Promise<any>, off?: string, danger?: boolean, done?: (answer: any) => void}} Action
 * @param {() => Action} describe called whenever it is shown
 */
export function action(describe) {
  const button = h("button", {});
  const why = h("span", { class: "why" });
  const element = h("div", { class: "action" }, button, why);
  const id = `why-${Math.random().toString(36).slice(2)}`;
  why.id = id;
  element.frame = () => {
    const { label, off, danger } = describe();
    setText(button, label);
    button.classList.toggle("danger", Boolean(danger));
    // When disabled it can still be reached by Tab, so that screen readers read the reason.
    button.setAttribute("aria-disabled", String(Boolean(off)));
    if (off) button.setAttribute("aria-describedby", id);
    else button.removeAttribute("aria-describedby");
    setText(why, off ?? "");
    why.hidden = !off;
  };
  button.addEventListener("click", () => { const what = describe(); if (!what.off) confirm(what); });
  element.frame();
  return element;
}

/** @param {Action} what */
function confirm(what) {
  const problem = h("p", { class: "problem", role: "alert" });
  const go = h("button", { class: what.danger ? "danger" : "primary" }, what.label);
  const dialog = h("dialog", { aria: { label: what.label } }, h("form", { method: "dialog", onsubmit: async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    go.disabled = true;
    setText(problem, "");
    try {
      const answer = await what.run();
      dialog.close();
      what.done?.(answer);
    } catch (wrong) {
      setText(problem, /** @type {Error} */ (wrong).message);
      go.disabled = false;
    }
  } }, h("h2", {}, what.label), h("p", {}, what.does), h("div", { class: "stack" }, h("span", { class: "muted" }, "The same from a terminal"), command(what.command)), problem,
  h("div", { class: "toolbar" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go)));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  go.focus();
}

/** Put a short message into a live region. @param {HTMLElement} where @param {...any} message */
export function showMessage(where, ...message) {
  fill(where, message);
}
