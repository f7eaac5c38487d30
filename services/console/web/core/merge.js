// @ts-check
// JSON Merge Patch (RFC 7386). Unchanged parts stay the same objects, so that frames share them and views can skip by
// identity what need not be drawn again.

/** @param {any} target @param {any} patch @returns {any} */
export function applyMergePatch(target, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const found = { ...(target && typeof target === "object" ? target : {}) };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete found[key];
    else found[key] = applyMergePatch(found[key], value);
  }
  return found;
}
