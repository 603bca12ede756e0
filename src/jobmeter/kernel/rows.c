/* Samples as lines of text: what stands before the time, the time, what stands between, the value, what comes after.
 *
 * A value is told in the fewest digits that read as the same number, and of those that are so short the nearest ones:
 * 0.1, 120, 1e+10, 2.5e-7.
 */
#include "common.h"
#include "digits.h"
#include "shortest.h"

#define NUMBERS 46 /* more than a time and a value have together: 20 and 24 characters */
#define PLAIN 10 /* from 10^10 on with an exponent, and below 10^-6 */
#define STRIDE 16 /* Texts are copied in pieces of so many bytes, whatever they end in. */

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

/* digits times 10^exponent, as few digits as possible. */
static char *put_scientific(char *out, uint64_t digits, int exponent) {
    char text[20];
    const decimal least = without_zeros((decimal){digits, exponent});
    digits = least.digits, exponent = least.exponent;
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
    const decimal found = shortest(bits, powers);
    return put_scientific(out, found.digits, found.exponent);
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
