/* Whole numbers in decimal digits. */
#ifndef JOBMETER_KERNEL_DIGITS_H
#define JOBMETER_KERNEL_DIGITS_H

#include <stdint.h>
#include <string.h>

static const char PAIRS[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354555657"
    "585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/* Exactly eight digits. */
static inline char *put_eight(char *out, uint32_t number) {
    const uint32_t upper = number / 10000, lower = number % 10000;
    memcpy(out, PAIRS + 2 * (upper / 100), 2);
    memcpy(out + 2, PAIRS + 2 * (upper % 100), 2);
    memcpy(out + 4, PAIRS + 2 * (lower / 100), 2);
    memcpy(out + 6, PAIRS + 2 * (lower % 100), 2);
    return out + 8;
}

/* Gives where the text ends; it has at most 20 characters. */
static inline char *put_natural(char *out, uint64_t number) {
    char digits[8];
    int first = 8, eights = 0;
    uint32_t eight[2];
    for (; number >= 100000000; number /= 100000000) eight[eights++] = (uint32_t)(number % 100000000);
    uint32_t rest = (uint32_t)number;
    for (; rest >= 100; rest /= 100) {
        first -= 2;
        memcpy(digits + first, PAIRS + 2 * (rest % 100), 2);
    }
    if (rest >= 10) {
        first -= 2;
        memcpy(digits + first, PAIRS + 2 * rest, 2);
    } else {
        digits[--first] = (char)('0' + rest);
    }
    memcpy(out, digits + first, (size_t)(8 - first));
    out += 8 - first;
    while (eights > 0) out = put_eight(out, eight[--eights]);
    return out;
}

static inline char *put_number(char *out, int64_t number) {
    if (number < 0) *out++ = '-';
    return put_natural(out, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
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
    const uint32_t lower = (uint32_t)((uint64_t)time - upper * 100000000);
    if (!same->size || upper != same->number) {
        same->number = upper;
        same->size = (int)(put_natural(same->text, upper) - same->text);
    }
    memcpy(out, same->text, 16); /* at most 11 digits */
    return put_eight(out + same->size, lower);
}

#endif
