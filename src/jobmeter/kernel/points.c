/* Times and values as the JSON text [[time,value],[time,value]], or values as [value,value], a list for each line. */
#include "common.h"
#include "digits.h"
#include "shortest.h"

#define LONGEST 64 /* more than a point takes: a time of 20 characters, a value of 24, what is around and between */
#define PLAIN 16   /* digits before the point that a value has at most without an exponent */

/* digits times 10^exponent as JSON has a number that need not be whole: 0.1, 120.0, 1e+16, 2.5e-7. */
static char *put_real(char *out, decimal number) {
    char text[20];
    uint64_t digits = number.digits;
    int exponent = number.exponent;
    for (; digits % 10 == 0; exponent++) digits /= 10;
    const int count = (int)(put_natural(text, digits) - text), whole = exponent + count;
    if (whole > 0 && whole <= PLAIN) {
        const int before = whole < count ? whole : count;
        memcpy(out, text, (size_t)before);
        out += before;
        for (int zero = before; zero < whole; zero++) *out++ = '0';
        *out++ = '.';
        if (whole >= count) {
            *out++ = '0';
            return out;
        }
        memcpy(out, text + whole, (size_t)(count - whole));
        return out + (count - whole);
    }
    if (whole > -5 && whole <= 0) {
        memcpy(out, "0.0000", 6);
        out += 2 - whole;
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
    if (whole > 0) *out++ = '+';
    return put_number(out, whole - 1);
}

static char *put_value(char *out, double value, const uint64_t *powers) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    if ((bits >> 52 & 0x7FF) == 0x7FF) {
        memcpy(out, "null", 4);
        return out + 4;
    }
    if (bits >> 63) *out++ = '-';
    bits &= ~(UINT64_C(1) << 63);
    memcpy(&value, &bits, 8);
    if (bits == 0) {
        memcpy(out, "0.0", 3);
        return out + 3;
    }
    if (value < 1e9) {
        /* One of up to 15 digits that gives the value when it is divided is the shortest: see rows.c. */
        const uint64_t digits = (uint64_t)(value * 1e2 + 0.5);
        if (digits && (double)digits / 1e2 == value) return put_real(out, (decimal){digits, -2});
    }
    return put_real(out, shortest(bits, powers));
}

/* The points of a line are those before its end that are of none before it; a value that is not finite becomes null.
   Where time is NULL the text has the values alone.
   powers: see shortest.h. out has room for LONGEST characters for each point and each line. Gives the length of the
   text, and at the place of each end where the text of that line ends; -1 where the ends are others than those of count
   points. */
EXPORTED int64_t jobmeter_points(
    const double *value, const int64_t *time, int64_t count, int64_t *ends, int64_t lines, const uint64_t *powers,
    char *out) {
    char *at = out;
    shared same = {0, 0, {0}};
    int64_t point = 0;
    for (int64_t line = 0; line < lines; line++) {
        const int64_t first = point, end = ends[line];
        if (end < first || end > count) return -1;
        *at++ = '[';
        for (; point < end; point++) {
            if (point > first) *at++ = ',';
            if (time) {
                *at++ = '[';
                at = put_time(at, time[point], &same);
                *at++ = ',';
            }
            at = put_value(at, value[point], powers);
            if (time) *at++ = ']';
        }
        *at++ = ']';
        ends[line] = at - out;
    }
    return point == count ? at - out : -1;
}
