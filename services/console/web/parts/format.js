// @ts-check
// Formatting of numbers, times and durations; the letters and words of states.
import { live } from "../core/live.js";

/** The letters of the live picture: the word, and the mark in the cell. @type {Record<string, [string, string]>} */
export const STATES = {
  f: ["free", ""], h: ["held", ""], s: ["spare", "S"], c: ["changing", "…"], o: ["out of service", "–"], d: ["degraded", "!"], x: ["faulty", "×"],
};

const day = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: "UTC" });
const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const hour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: "UTC" });

/** Seconds since the epoch, in full. @param {number} seconds */
export const moment = (seconds) => day.format(seconds * 1000).replace(",", "");

/** The time of day of an ISO timestamp, with its date unless that is today's, emulated: at sixty times a day lasts 24 minutes. @param {string | undefined | null} iso */
export const clock = (iso) => (iso ? `${iso.slice(0, 10) === today() ? "" : `${date.format(new Date(iso))} `}${hour.format(new Date(iso))}` : "");

/** The emulated date, as an ISO timestamp begins; "" before it is known. */
export const today = () => (live.emulated === null ? "" : new Date(live.emulated * 1000).toISOString().slice(0, 10));

/** Seconds between two ISO timestamps. @param {string} from @param {string} to */
export const secondsBetween = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;

/** @param {number} seconds */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  const hours = Math.round(seconds / 3600);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {number | undefined | null} value @param {number} [digits] */
export function number(value, digits = 0) {
  if (value === undefined || value === null || !Number.isFinite(value)) return "–";
  return value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

/** The product, or null for an unknown value. @param {number | undefined | null} value @param {number} factor */
export const times = (value, factor) => (value === undefined || value === null ? null : value * factor);

/** Natural order of names: sn2 before sn10. @param {string} one @param {string} other */
export const compareNames = (one, other) => one.localeCompare(other, "en", { numeric: true });

/** One of eight outlines, always the same for a holder. @param {string} holder */
export function hue(holder) {
  let hash = 0;
  for (const letter of holder) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
  return String(hash % 8);
}

/** A resource's name without the project where that is the default one. @param {string} key */
export const short = (key) => key.replace(/^default\//, "");
