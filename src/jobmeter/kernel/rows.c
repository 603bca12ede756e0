/* Samples as lines of text: what stands before the time, the time, what stands between, the value, what comes after.
 *
 * A value is told in the fewest digits that read as the same number, and of those that are so short the nearest ones:
 * 0.1, 120, 1e+10, 2.5e-7.
 */
#include "common.h"
#include "digits.h"

#define NUMBERS 46 /* more than a time and a value have together: 20 and 24 characters */
#define PLAIN 10 /* from 10^10 on with an exponent, and below 10^-6 */
#define STRIDE 16 /* Texts are copied in pieces of so many bytes, whatever they end in. */
#define LOWEST_POWER (-292)

__extension__ typedef unsigned __int128 wide;

/* What a row's texts are: text 3 * index + n is from edges[3 * index + n] on, n being 0, 1 and 2. */
typedef struct {
    const char *text;
    const int64_t *edges;
} texts;

static inline char *put_text(char *out, const texts *from, int64_t number) {
    const int64_t begin = from->edges[number], size = from->edges[number + 1] - begin;
    for (int64_t at = 0; at < size; at += STRIDE) memcpy(out + at, from->text + begin + at, STRIDE);
    return out + size;
}

/* digits times 10^-places; tens is 10^places. */
static inline char *put_decimal(char *out, uint64_t digits, int places, uint64_t tens) {
    const uint64_t whole = digits / tens;
    uint64_t rest = digits - whole * tens;
    if (whole < 10)
        *out++ = (char)('0' + whole);
    else
        out = put_natural(out, whole);
    if (!rest) return out;
    *out++ = '.';
    for (; rest % 10 == 0; places--) rest /= 10;
    for (int at = places - 1; at >= 0; at--, rest /= 10) out[at] = (char)('0' + rest % 10);
    return out + places;
}

/* What the times of a series share for hours: all but the last eight digits. */
typedef struct {
    uint64_t number;
    int size; /* 0 where there is none yet */
    char text[24];
} shared;

static inline char *put_time(char *out, int64_t time, shared *same) {
    if (time < 100000000) return put_number(out, time);
    const uint64_t upper = (uint64_t)time / 100000000;
    uint32_t lower = (uint32_t)((uint64_t)time - upper * 100000000);
    if (!same->size || upper != same->number) {
        same->number = upper;
        same->size = (int)(put_natural(same->text, upper) - same->text);
    }
    memcpy(out, same->text, 16); /* at most 11 digits */
    out += same->size;
    for (int at = 6; at >= 0; at -= 2, lower /= 100) memcpy(out + at, PAIRS + 2 * (lower % 100), 2);
    return out + 8;
}

/* digits times 10^exponent, as few digits as possible. */
static char *put_scientific(char *out, uint64_t digits, int exponent) {
    char text[20];
    for (; digits % 10 == 0; exponent++) digits /= 10;
    const int count = (int)(put_natural(text, digits) - text), highest = exponent + count - 1;
    if (exponent >= 0 && highest < PLAIN) {
        for (; exponent > 0; exponent--) digits *= 10;
        return put_natural(out, digits);
    }
    if (highest >= 0 && highest < PLAIN) {
        memcpy(out, text, (size_t)highest + 1);
        out += highest + 1;
        *out++ = '.';
        memcpy(out, text + highest + 1, (size_t)(count - highest - 1));
        return out + count - highest - 1;
    }
    if (highest >= -6 && highest < 0) {
        memcpy(out, "0.00000", 7);
        out += 1 - highest;
        memcpy(out, text, (size_t)count);
        return out + count;
    }
    *out++ = text[0];
    if (count > 1) {
        *out++ = '.';
        memcpy(out, text + 1, (size_t)count - 1);
        out += count - 1;
    }
    *out++ = 'e';
    *out++ = highest < 0 ? '-' : '+';
    return put_natural(out, (uint64_t)(highest < 0 ? -highest : highest));
}

/* The upper 64 bits of power * factor / 2^64, the lowest of them set where anything was lost. */
static inline uint64_t scaled(const uint64_t *power, uint64_t factor) {
    const wide low = (wide)power[0] * factor, high = (wide)power[1] * factor + (uint64_t)(low >> 64);
    return (uint64_t)(high >> 64) | ((uint64_t)high > 1);
}

/* The shortest decimal within the interval of what reads as the number, by Raffaello Giulietti's method ("The
 * Schubfach way to render doubles", 2020): bounds and number times a power of ten, in which a digit is a unit.
 * bits: a finite number above 0. */
static char *put_shortest(char *out, uint64_t bits, const uint64_t *powers) {
    const uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    const int field = (int)(bits >> 52);
    const uint64_t significand = field ? fraction | UINT64_C(1) << 52 : fraction;
    const int binary = field ? field - 1075 : -1074;
    const int closer = !fraction && field > 1; /* the number below is half as far as the one above */
    const int odd = (int)(significand & 1);
    const int decimal = (int)(((int64_t)binary * 1262611 - (closer ? 524031 : 0)) >> 22);
    const int shift = binary + (int)(((int64_t)-decimal * 1741647) >> 19) + 1;
    const uint64_t *power = powers + 2 * (-decimal - LOWEST_POWER);
    const uint64_t lower = scaled(power, (4 * significand - 2 + (uint64_t)closer) << shift) + (uint64_t)odd;
    const uint64_t number = scaled(power, 4 * significand << shift);
    const uint64_t upper = scaled(power, (4 * significand + 2) << shift) - (uint64_t)odd;
    const uint64_t unit = number / 4, ten = unit / 10;
    if (unit >= 10) {
        const int below = lower <= 40 * ten, above = 40 * ten + 40 <= upper;
        if (below != above) return put_scientific(out, ten + (uint64_t)above, decimal + 1);
    }
    const int below = lower <= 4 * unit, above = 4 * unit + 4 <= upper;
    if (below != above) return put_scientific(out, unit + (uint64_t)above, decimal);
    const uint64_t middle = 4 * unit + 2;
    const int up = number > middle || (number == middle && (unit & 1));
    return put_scientific(out, unit + (uint64_t)up, decimal);
}

static char *put_value(char *out, double value, const uint64_t *powers) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    if (value != value) {
        memcpy(out, "nan", 3);
        return out + 3;
    }
    if (bits >> 63) *out++ = '-';
    bits &= ~(UINT64_C(1) << 63);
    memcpy(&value, &bits, 8);
    if (value < 1e9) {
        /* Up to 15 digits no two decimals read as one number, and dividing two whole numbers gives what the decimal
         * reads as: one that gives the value is the only one of up to 15 digits. */
        uint64_t digits = (uint64_t)(value * 1e2 + 0.5);
        if ((double)digits / 1e2 == value) return put_decimal(out, digits, 2, 100);
        digits = (uint64_t)(value * 1e6 + 0.5);
        if ((double)digits / 1e6 == value) return put_decimal(out, digits, 6, 1000000);
    }
    if (bits == UINT64_C(0x7FF) << 52) {
        memcpy(out, "inf", 3);
        return out + 3;
    }
    return put_shortest(out, bits, powers);
}

/* The lines of samples, as many as there is room for from used on; gives how many samples that were, and
 * where the text ends in used. texts and edges: see above. powers: 10^n for n from LOWEST_POWER on, the upper 128 bits
 * of each rounded up, the lower half of them first. longest: of the texts of a row together. text and out go on for
 * STRIDE bytes. */
EXPORTED int64_t jobmeter_rows(const uint32_t *index, const int64_t *time, const double *value, int64_t count,
                               const char *text, const int64_t *edges, int64_t longest, const uint64_t *powers,
                               char *out, int64_t room, int64_t *used) {
    const texts from = {text, edges};
    char *at = out + *used, *limit = out + room - longest - NUMBERS - STRIDE;
    shared same = {0, 0, {0}};
    int64_t row = 0;
    for (; row < count && at <= limit; row++) {
        const int64_t number = 3 * (int64_t)index[row];
        at = put_text(at, &from, number);
        at = put_time(at, time[row], &same);
        at = put_text(at, &from, number + 1);
        at = put_value(at, value[row], powers);
        at = put_text(at, &from, number + 2);
    }
    *used = at - out;
    return row;
}
