// @ts-check
import { h, fill, link } from "../parts/dom.js";

export const title = () => "Not found";

/** @param {HTMLElement} root @param {{params: string[]}} page */
export function mount(root, { params }) {
  fill(root, h("h1", {}, "There is no such page"), h("p", {}, h("code", {}, params[0]), " is no address of the console. ", link("/", "The overview"), " leads everywhere."));
}
