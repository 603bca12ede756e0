// Colours that people with any colour vision tell apart (Okabe and Ito, https://jfly.uni-koeln.de/color/), and cividis
// for heat (https://doi.org/10.1371/journal.pone.0199239).
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#3d9bd1", "#000000", "#7a7a7a"];
const DARK = ["#56b4e9", "#e69f00", "#2fc196", "#e39bc4", "#f0e442", "#9ad0f5", "#f2f2f2", "#9a9a9a"];
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const AROUND = ["#0b4f8a", "#3f83bd", "#93bddd", "#dfe7ee", "#f4c89a", "#df8338", "#a44a00"];
const AROUND_DARK = ["#6cb8f0", "#3f83bd", "#255478", "#2a3038", "#7a4a1e", "#c8742f", "#ffad5c"];

export const palette = (dark: boolean): readonly string[] => (dark ? DARK : LIGHT);

/** The colour of a share from 0 to 1. */
export const heat = (share: number): string => between(CIVIDIS, share);

/** The colour of a difference from -1 to 1; 0 is the colour of the ground. */
export const around = (share: number, dark: boolean): string => between(dark ? AROUND_DARK : AROUND, (share + 1) / 2);

function between(colors: readonly string[], share: number): string {
  const at = Math.min(Math.max(share, 0), 1) * (colors.length - 1);
  const low = Math.floor(at);
  const [a, b] = [parts(colors[low]!), parts(colors[Math.min(low + 1, colors.length - 1)]!)];
  return `rgb(${a.map((value, part) => Math.round(value + (b[part]! - value) * (at - low))).join(" ")})`;
}

const parts = (color: string): number[] => [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16));

export const ink = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
