// @ts-check
// The session and its token. The token is kept in this tab's sessionStorage, which belongs to this origin and is gone
// with the tab; another tab of the same console gets it from the shared worker.

const KEY = "cloudmatrix-token";

/** @type {{token: string, name: string, project: string, role: string, everywhere: boolean} | null} */
let current = null;

/** Who is logged in; null before. */
export const session = () => current;
export const token = () => current?.token ?? "";
export const storedToken = () => sessionStorage.getItem(KEY);

/** Whether the user may change resources of a project, and whether also those shared by all. */
export const isEditor = () => current?.role === "editor" || current?.role === "admin";
export const isAdmin = () => current?.role === "admin";

/** Log in with a token, "" if the stack requires none. Throws if it is refused. @param {string} given */
export async function login(given) {
  const answer = await fetch("/whoami", { headers: given ? { Authorization: `Bearer ${given}` } : {} });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail ?? `HTTP ${answer.status}`);
  current = { ...(await answer.json()), token: given };
  if (given) sessionStorage.setItem(KEY, given);
}

/** Exchange the code of a one-time link for its token. @param {string} code @returns {Promise<string>} */
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
