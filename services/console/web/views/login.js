// @ts-check
import { h, setText } from "../parts/dom.js";

/** @param {(token: string) => Promise<void>} enter @param {string} why what went wrong before */
export function loginForm(enter, why) {
  const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true, id: "token", spellcheck: false });
  const problem = h("p", { class: "problem", role: "alert" }, why);
  const form = h("form", { class: "login", onsubmit: async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    setText(problem, "");
    try {
      await enter(input.value.trim());
    } catch (wrong) {
      setText(problem, /** @type {Error} */ (wrong).message);
      input.select();
    }
  } },
  h("h1", {}, "CloudMatrix console"),
  h("p", {}, "On the machine where the stack runs, ", h("code", {}, "matrixctl console"), " opens this page logged in."),
  h("label", { for: "token" }, "Or enter a bearer token (create one with ", h("code", {}, "matrixctl token create"), ")"),
  h("div", { class: "row" }, input, h("button", { class: "primary" }, "Log in")), problem);
  return h("main", { id: "main" }, form);
}
