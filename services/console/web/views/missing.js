// @ts-check
import { h, fill, link } from "../parts/dom.js";

export const title = () => "Not found";

/** @param {HTMLElement} root @param {{params: string[]}} page */
export function mount(root, { params }) {
  fill(root, h("h1", {}, "Page not found"), h("p", {}, h("code", {}, params[0]), " is not a page of the console. Go to the ", link("/", "overview")));
}
