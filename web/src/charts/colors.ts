// Colours for all kinds of colour vision (Okabe and Ito, https://jfly.uni-koeln.de/color/), and cividis for heat maps
// (https://doi.org/10.1371/journal.pone.0199239).
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#3d9bd1", "#000000", "#7a7a7a"];
const DARK = ["#56b4e9", "#e69f00", "#2fc196", "#e39bc4", "#f0e442", "#9ad0f5", "#f2f2f2", "#9a9a9a"];
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const DIVERGING = ["#0b4f8a", "#3f83bd", "#93bddd", "#dfe7ee", "#f4c89a", "#df8338", "#a44a00"];
const DIVERGING_DARK = ["#6cb8f0", "#3f83bd", "#255478", "#2a3038", "#7a4a1e", "#c8742f", "#ffad5c"];

export const palette = (dark: boolean): readonly string[] => (dark ? DARK : LIGHT);

const SHADES = 256;

/** Return a colour scale from 0 to 1 as `ImageData` pixels. */
function makeScale(colors: readonly string[]): Uint32Array {
  const ends = colors.map((color) => [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16)));
  return Uint32Array.from({ length: SHADES }, (_, shade) => {
    const at = (shade / (SHADES - 1)) * (ends.length - 1);
    const low = Math.min(Math.floor(at), ends.length - 2);
    const [red, green, blue] = ends[low]!.map((value, part) => Math.round(value + (ends[low + 1]![part]! - value) * (at - low)));
    return ((255 << 24) | (blue! << 16) | (green! << 8) | red!) >>> 0;
  });
}

const pixel = (scale: Uint32Array, share: number): number => scale[Math.round(Math.min(Math.max(share, 0), 1) * (SHADES - 1))]!;
const HEAT = makeScale(CIVIDIS);
const DIFFERENCE = makeScale(DIVERGING);
const DIFFERENCE_DARK = makeScale(DIVERGING_DARK);

/** Return the pixel of a share from 0 to 1. */
export const heatPixel = (share: number): number => pixel(HEAT, share);

/** Return the pixel of a difference from -1 to 1. A difference of 0 has the background colour. */
export const differencePixel = (share: number, dark: boolean): number => pixel(dark ? DIFFERENCE_DARK : DIFFERENCE, (share + 1) / 2);

let probe: HTMLElement | null = null;
const resolved = new Map<string, string>();

/** Resolve a colour of the theme: a canvas does not understand CSS variables and `light-dark()`. */
export function themeColor(name: string): string {
  const theme = `${document.documentElement.dataset["theme"]} ${matchMedia("(prefers-color-scheme: dark)").matches} ${name}`;
  let found = resolved.get(theme);
  if (found === undefined) {
    probe ??= document.head.appendChild(document.createElement("i"));
    probe.style.color = `var(${name})`;
    found = getComputedStyle(probe).color;
    resolved.set(theme, found);
  }
  return found;
}

export const fontFamily = (): string => getComputedStyle(document.documentElement).getPropertyValue("--font").trim();
