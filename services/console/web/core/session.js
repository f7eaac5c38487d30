// @ts-check
// Whose token the page shows. It is kept in this tab's sessionStorage, which belongs to this port alone and is gone with
// the tab; another tab of the same console gets it from the worker they share.

const KEY = "cloudmatrix-token";

/** @type {{token: string, name: string, project: string, role: string, everywhere: boolean} | null} */
let current = null;

/** Who is logged in; null before. */
export const session = () => current;
export const token = () => current?.token ?? "";
export const stored = () => sessionStorage.getItem(KEY);

/** Whether this one may change what is a project's, and whether also what is everybody's. */
export const isEditor = () => current?.role === "editor" || current?.role === "admin";
export const isAdmin = () => current?.role === "admin";

/** Log in with a token, "" where the stack asks for none. True where it is accepted. @param {string} given */
export async function login(given) {
  const answer = await fetch("/whoami", { headers: given ? { Authorization: `Bearer ${given}` } : {} });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail ?? `HTTP ${answer.status}`);
  current = { ...(await answer.json()), token: given };
  if (given) sessionStorage.setItem(KEY, given);
}

/** The token that a one-time link stands for. @param {string} code @returns {Promise<string>} */
export async function redeem(code) {
  const body = JSON.stringify({ code });
  const answer = await fetch("/login-links:redeem", { method: "POST", body, headers: { "Content-Type": "application/json" } });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.detail);
  return found.token;
}

export function logout() {
  current = null;
  sessionStorage.removeItem(KEY);
}
