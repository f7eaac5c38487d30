// @ts-check
// Numbers, times and durations as people read them; the letters and words of states.

/** What a letter of the live picture means: the word, the mark in the cell. @type {Record<string, [string, string]>} */
export const STATES = {
  f: ["free", ""], h: ["held", ""], s: ["spare", "S"], c: ["changing", "…"], o: ["out of service", "–"], d: ["degraded", "!"], x: ["faulty", "×"],
};

const day = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: "UTC" });
const hour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: "UTC" });

/** Seconds since the epoch, in full. @param {number} seconds */
export const moment = (seconds) => day.format(seconds * 1000).replace(",", "");

/** The time of day of an ISO timestamp. @param {string | undefined | null} iso */
export const clock = (iso) => (iso ? hour.format(new Date(iso)) : "");

/** Seconds between two ISO timestamps. @param {string} from @param {string} to */
export const between = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;

/** @param {number} seconds */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.round((seconds % 86400) / 3600)} h`;
}

/** @param {number | undefined | null} value @param {number} [digits] */
export function number(value, digits = 0) {
  if (value === undefined || value === null || !Number.isFinite(value)) return "–";
  return value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

/** What is not known stays so. @param {number | undefined | null} value @param {number} factor */
export const times = (value, factor) => (value === undefined || value === null ? null : value * factor);

/** One of eight outlines, the same for a holder always. @param {string} holder */
export function hue(holder) {
  let hash = 0;
  for (const letter of holder) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
  return String(hash % 8);
}

/** A resource's name without the project where that is the default one. @param {string} key */
export const short = (key) => key.replace(/^default\//, "");
