/* Values as whole numbers and a power of ten, where that is exact. */
#include "common.h"

#define DIGITS 16
#define WHOLE 9007199254740992.0 /* 2^53: below it every whole number is a double */
#define QUIET 16                 /* different values without the last digit, until it is left out */
#define MISSES 8                 /* values that are no decimals, until only some are tried */
#define LONG 9                   /* digits from which values that come again are smaller as they are */
#define OFTEN 30                 /* of 255 values that many are the one before: they come again */
#define SELDOM 10
#define AHEAD 32                 /* rows: by then what is remembered of the series has come from memory */

/* What is remembered of one series; 24 bytes, all 0 at first. */
typedef struct {
    uint64_t series;
    double last;
    uint16_t repeats; /* the share of values that are the one before, of 65280 */
    uint8_t digits, quiet, misses, plain;
    uint8_t unused[2];
} Series;

static const double POWER[DIGITS] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

/* Whether the value is the double nearest to a number with so many digits behind the point; number gets its digits. */
static inline int fits(double value, int digits, int64_t *number) {
    double scaled = value * POWER[digits];
    if (!(scaled < WHOLE && scaled > -WHOLE)) return 0;
    *number = (int64_t)(scaled + (scaled < 0 ? -0.5 : 0.5));
    return (double)*number / POWER[digits] == value;
}

/* The digits that the series needs; -1 where the value is no decimal. */
static int wanted(Series *known, double value, int64_t row, int64_t *number) {
    if (fits(value, known->digits, number)) {
        if (value != known->last && known->digits) {
            known->quiet = *number % 10 ? 0 : known->quiet + 1;
        }
        return known->digits;
    }
    if (known->misses >= MISSES && row % 16) return -1;
    for (int digits = known->digits + 1; digits < DIGITS; digits++) {
        if (fits(value, digits, number)) {
            known->misses = 0;
            known->quiet = 0;
            return digits;
        }
    }
    if (known->misses < MISSES) known->misses++;
    return -1;
}

static void count_repeats(Series *known, double value) {
    if (value == known->last) {
        known->repeats += (uint16_t)((65280 - known->repeats) >> 4);
    } else {
        known->repeats -= known->repeats >> 4;
    }
    int share = known->repeats >> 8;
    if (share > OFTEN) known->plain = 1;
    if (share < SELDOM) known->plain = 0;
}

/* For each row either number / 10^digits is its value, or rest is it and number is 0. The slots remember what a series
   needs, so that its rows stay alike whatever batches they come in; their number is a power of two. */
EXPORTED void jobmeter_decimals(
    const uint64_t *series, const double *value, int64_t rows, Series *slots, int64_t count,
    double *rest, int64_t *number, uint8_t *digits) {
    Series *known = slots;
    for (int64_t row = 0; row < rows; row++) {
        if (row + AHEAD < rows) __builtin_prefetch(slots + (series[row + AHEAD] & (uint64_t)(count - 1)), 1);
        if (!row || series[row] != series[row - 1]) {
            known = slots + (series[row] & (uint64_t)(count - 1));
            if (known->series != series[row]) *known = (Series){.series = series[row]};
        }
        int64_t whole = 0;
        count_repeats(known, value[row]);
        int found = value[row] == 0 ? -1 : wanted(known, value[row], row, &whole);
        if (found >= 0) known->digits = (uint8_t)found;
        if (found < 0 || (known->plain && known->digits >= LONG)) whole = 0;
        known->last = value[row];
        number[row] = whole;
        rest[row] = whole ? 0 : value[row];
        digits[row] = known->digits;
        if (known->quiet >= QUIET) {
            known->quiet = 0;
            known->digits--;
        }
    }
}
