/* Times and values as the JSON text [[time,value],[time,value]], or values as [value,value], a list for each line. Or in
   Prometheus' form: [[seconds,"value"],[seconds,"value"]]. */
#include "common.h"
#include "digits.h"
#include "shortest.h"

#define LONGEST 64 /* more than a point takes: a time of 20 characters, a value of 24, what is around and between */
#define PLAIN 16   /* digits before the point that a value has at most without an exponent */
#define PLAIN_TEXT 21 /* the same in Prometheus' form, and zeros behind the point that it has at most */
#define ZEROS_TEXT 5

#define STRIDE 16 /* Digits are copied in pieces of so many characters, however many they are. */

static const uint64_t TENS[20] = {
    1ULL, 10ULL, 100ULL, 1000ULL, 10000ULL, 100000ULL, 1000000ULL, 10000000ULL, 100000000ULL, 1000000000ULL,
    10000000000ULL, 100000000000ULL, 1000000000000ULL, 10000000000000ULL, 100000000000000ULL, 1000000000000000ULL,
    10000000000000000ULL, 100000000000000000ULL, 1000000000000000000ULL, 10000000000000000000ULL};

/* How many digits a number above 0 has. */
static inline int length_of(uint64_t number) {
    const int about = (64 - __builtin_clzll(number)) * 1233 >> 12;
    return about + (number >= TENS[about]);
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "digits are written lowest byte first: a server needs a little-endian processor"
#endif

/* The eight digits of a number below 10^8 as characters, the first of them lowest: pairs of digits, then each pair, are
   taken apart in one register. What is written in parts cannot be read back as a whole at once. */
static inline uint64_t eight_digits(uint32_t number) {
    const uint64_t fours = number / 10000 | (uint64_t)(number % 10000) << 32;
    const uint64_t hundreds = fours * 10486 >> 20 & UINT64_C(0x7F0000007F);
    const uint64_t pairs = hundreds | (fours - 100 * hundreds) << 16;
    const uint64_t tens = pairs * 103 >> 10 & UINT64_C(0xF000F000F000F);
    return (tens | (pairs - 10 * tens) << 8) + UINT64_C(0x3030303030303030);
}

/* The digits of a number that has count of them, at most 24; there is room for 8 more. */
static inline void put_digits(char *out, uint64_t number, int count) {
    const int eights = (count - 1) / 8, leading = count - 8 * eights;
    uint32_t eight[2];
    for (int at = 0; at < eights; at++, number /= 100000000) eight[at] = (uint32_t)(number % 100000000);
    uint64_t text = eight_digits((uint32_t)number) >> 8 * (8 - leading);
    memcpy(out, &text, 8);
    out += leading;
    for (int at = eights; at > 0; out += 8) {
        text = eight_digits(eight[--at]);
        memcpy(out, &text, 8);
    }
}

/* digits times 10^exponent as JSON has a number that need not be whole: 0.1, 120.0, 1e+16, 2.5e-7. There is room for
   STRIDE characters behind it. digits: above 0, of at most 17 digits. */
static char *put_real(char *out, decimal number) {
    char text[3 * STRIDE];
    number = without_zeros(number);
    const uint64_t digits = number.digits;
    const int count = length_of(digits), whole = number.exponent + count;
    if (whole > -5 && whole <= 0) {
        memcpy(out, "0.0000", 6);
        out += 2 - whole;
        put_digits(out, digits, count);
        return out + count;
    }
    put_digits(text, digits, count);
    if (whole > 0 && whole <= PLAIN) {
        const int before = whole < count ? whole : count;
        memcpy(out, text, STRIDE);
        out += before;
        for (int zero = before; zero < whole; zero++) *out++ = '0';
        *out++ = '.';
        if (whole >= count) {
            *out++ = '0';
            return out;
        }
        memcpy(out, text + whole, STRIDE);
        return out + (count - whole);
    }
    *out++ = text[0];
    if (count > 1) {
        *out++ = '.';
        memcpy(out, text + 1, STRIDE);
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

/* A time in ms as seconds: a number that need not be whole, with the fewest digits. */
static char *put_seconds(char *out, int64_t time, shared *same) {
    const uint64_t size = time < 0 ? 0 - (uint64_t)time : (uint64_t)time;
    if (time < 0) *out++ = '-';
    out = put_time(out, (int64_t)(size / 1000), same);
    const int fraction = (int)(size % 1000);
    *out++ = '.';
    *out++ = (char)('0' + fraction / 100);
    if (fraction % 100) *out++ = (char)('0' + fraction / 10 % 10);
    if (fraction % 10) *out++ = (char)('0' + fraction % 10);
    return out;
}

/* A value in Prometheus' form: 0, 120, 0.00001, 1e-07, 2.5e+21, NaN, +Inf. There is room for STRIDE characters behind. */
static char *put_text(char *out, double value, const uint64_t *powers) {
    char text[3 * STRIDE];
    uint64_t bits;
    memcpy(&bits, &value, 8);
    const int negative = (int)(bits >> 63);
    bits &= ~(UINT64_C(1) << 63);
    if (bits >> 52 == 0x7FF) {
        const int infinite = !(bits << 12);
        memcpy(out, infinite ? negative ? "-Inf" : "+Inf" : "NaN", 4);
        return out + 3 + infinite;
    }
    if (negative) *out++ = '-';
    if (bits == 0) {
        *out = '0';
        return out + 1;
    }
    memcpy(&value, &bits, 8);
    decimal number = {0, -2};
    /* One of up to 15 digits that gives the value when it is divided is the shortest: see rows.c. */
    if (value < 1e9) number.digits = (uint64_t)(value * 1e2 + 0.5);
    if (!number.digits || (double)number.digits / 1e2 != value) number = shortest(bits, powers);
    number = without_zeros(number);
    const int count = length_of(number.digits), whole = number.exponent + count;
    if (whole > -ZEROS_TEXT - 1 && whole <= 0) {
        memcpy(out, "0.00000", 8);
        out += 2 - whole;
        put_digits(out, number.digits, count);
        return out + count;
    }
    put_digits(text, number.digits, count);
    if (whole > 0 && whole <= PLAIN_TEXT) {
        const int before = whole < count ? whole : count;
        memcpy(out, text, 2 * STRIDE);
        out += before;
        for (int zero = before; zero < whole; zero++) *out++ = '0';
        if (whole >= count) return out;
        *out++ = '.';
        memcpy(out, text + whole, STRIDE);
        return out + (count - whole);
    }
    *out++ = text[0];
    if (count > 1) {
        *out++ = '.';
        memcpy(out, text + 1, STRIDE);
        out += count - 1;
    }
    *out++ = 'e';
    *out++ = whole > 0 ? '+' : '-';
    const int power = whole > 0 ? whole - 1 : 1 - whole;
    if (power < 10) *out++ = '0';
    return put_natural(out, (uint64_t)power);
}

/* The points of a line are those before its end that are of none before it; a value that is not finite becomes null.
   Where time is NULL the text has the values alone. With as_text the points have Prometheus' form: a time is needed.
   powers: see shortest.h. out has room for LONGEST characters for each point and each line. Gives the length of the
   text, and at the place of each end where the text of that line ends; -1 where the ends are others than those of count
   points. */
EXPORTED int64_t jobmeter_points(
    const double *value, const int64_t *time, int64_t count, int64_t *ends, int64_t lines, const uint64_t *powers,
    int64_t as_text, char *out) {
    char *at = out;
    shared same = {0, 0, {0}};
    int64_t point = 0;
    for (int64_t line = 0; line < lines; line++) {
        const int64_t first = point, end = ends[line];
        if (end < first || end > count) return -1;
        *at++ = '[';
        for (; point < end; point++) {
            if (point > first) *at++ = ',';
            if (as_text) {
                *at++ = '[';
                at = put_seconds(at, time[point], &same);
                memcpy(at, ",\"", 2);
                at = put_text(at + 2, value[point], powers);
                memcpy(at, "\"]", 2);
                at += 2;
                continue;
            }
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
