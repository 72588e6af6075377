/** Sizes, times and rates in words. */

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"] as const;

/** For example `512 B`, `1.5 KiB`, `20 MiB`: about three digits. */
export function sizeText(bytes: number): string {
  if (bytes < 1024) return `${Math.round(bytes)} B`;
  let value = bytes / 1024;
  let unit = 0;
  // What rounds to 1000 or more moves on, so that no size takes more than four characters and its unit.
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value < 99.95 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

/** For example `3,211,264 bytes`. */
export function bytesText(bytes: number): string {
  return bytes === 1 ? "1 byte" : `${bytes.toLocaleString("en-US")} bytes`;
}

export function rateText(bytes: number, millis: number): string {
  return `${sizeText((bytes / Math.max(millis, 1)) * 1000)}/s`;
}

/** For example `1.4 ms`, `410 ms`, `4.10 s`, `12.3 s`, `3:05 min`. */
export function timeText(millis: number): string {
  if (millis < 9.95) return `${millis.toFixed(1)} ms`;
  if (millis < 999.5) return `${Math.round(millis)} ms`;
  const seconds = millis / 1000;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  return `${clockText(millis)} min`;
}

/** For example `0:07`, `3:05`, `61:00`. */
export function clockText(millis: number): string {
  const seconds = Math.round(millis / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}
