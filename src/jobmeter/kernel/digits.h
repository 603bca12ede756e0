/* Whole numbers in decimal digits. */
#ifndef JOBMETER_KERNEL_DIGITS_H
#define JOBMETER_KERNEL_DIGITS_H

#include <stdint.h>
#include <string.h>

static const char PAIRS[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354555657"
    "585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/* Gives where the text ends; it has at most 20 characters. */
static inline char *put_natural(char *out, uint64_t number) {
    char digits[20];
    int first = 20;
    while (number >= 100) {
        uint64_t pair = number % 100;
        number /= 100;
        first -= 2;
        memcpy(digits + first, PAIRS + 2 * pair, 2);
    }
    if (number >= 10) {
        first -= 2;
        memcpy(digits + first, PAIRS + 2 * number, 2);
    } else {
        digits[--first] = (char)('0' + number);
    }
    memcpy(out, digits + first, (size_t)(20 - first));
    return out + (20 - first);
}

static inline char *put_number(char *out, int64_t number) {
    if (number < 0) *out++ = '-';
    return put_natural(out, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

#endif
