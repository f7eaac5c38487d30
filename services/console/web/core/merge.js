// @ts-check
// JSON Merge Patch (RFC 7386). What did not change stays the same object, so that frames share what they have in common
// and a view sees by identity what it need not draw again.

/** @param {any} target @param {any} patch @returns {any} */
export function merged(target, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const found = { ...(target && typeof target === "object" ? target : {}) };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete found[key];
    else found[key] = merged(found[key], value);
  }
  return found;
}
