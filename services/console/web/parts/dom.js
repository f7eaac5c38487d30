// @ts-check
// Creation and update of elements. Text is always set as text: no part of a service's answer is parsed as HTML.

/**
 * An element. `properties`: `on<event>` listeners, `class`, `data` (an object), `aria` (an object), booleans and
 * attributes by name; undefined, null and false are left out.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...any} children
 * @returns {any}
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "aria") for (const [key, text] of Object.entries(value)) element.setAttribute(`aria-${key}`, String(text));
    else if (name in element && typeof value !== "string") /** @type {any} */ (element)[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** @param {Element} element @param {any[]} children */
function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replace the children. @param {Element} element @param {...any} children */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Set the text if it differs. A sole text node is changed in place, which limits the layout work. @param {Node} node @param {string} text */
export function setText(node, text) {
  const only = node.firstChild;
  if (only instanceof Text && !only.nextSibling && text) {
    if (only.data !== text) only.data = text;
  } else if (node.textContent !== text) node.textContent = text;
}

/** Set an attribute if it differs; null removes it. @param {Element} element @param {string} name @param {string | null} value */
export function set(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Set a property if it differs, as browsers treat any assignment as a change. @param {any} element @param {string} name @param {any} value */
export function setProperty(element, name, value) {
  if (element[name] !== value) element[name] = value;
}

/**
 * Keep children in step with items: created once for each key, updated, ordered, removed.
 * @template T
 * @param {Element} parent
 * @param {Iterable<T>} items
 * @param {(item: T) => string} key
 * @param {(item: T) => any} create an element, whose `update(item)` is called each time if it has one
 */
export function sync(parent, items, key, create) {
  const known = new Map([...parent.children].map((child) => [/** @type {any} */ (child).syncKey, child]));
  /** @type {Map<string, number>} */
  const times = new Map();
  let at = parent.firstElementChild;
  for (const item of items) {
    const own = key(item);
    const before = times.get(own) ?? 0;
    times.set(own, before + 1);
    const name = before ? `${own} ${before}` : own; // items of one key are told apart by their order, or each sync would add one
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = create(item);
      /** @type {any} */ (child).syncKey = name;
    }
    /** @type {any} */ (child).update?.(item);
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(/** @type {Element} */ (child), at);
  }
  for (const gone of known.values()) gone.remove();
}

/** A link within the page. @param {string} href @param {...any} children */
export const link = (href, ...children) => h("a", { href }, ...children);

/** One of several words for a number. @param {number} count @param {string} one @param {string} [many] */
export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
