/* The fewest decimal digits that read as a given number. */
#ifndef JOBMETER_KERNEL_SHORTEST_H
#define JOBMETER_KERNEL_SHORTEST_H

#include <stdint.h>

#define LOWEST_POWER (-292)

__extension__ typedef unsigned __int128 wide;

/* digits times 10^exponent; digits may end in zeros. */
typedef struct {
    uint64_t digits;
    int exponent;
} decimal;

/* The same without the zeros that its digits end in. digits: above 0. */
static inline decimal without_zeros(decimal number) {
    for (; number.digits % 100000000 == 0; number.exponent += 8) number.digits /= 100000000;
    if (number.digits % 10000 == 0) number.digits /= 10000, number.exponent += 4;
    if (number.digits % 100 == 0) number.digits /= 100, number.exponent += 2;
    if (number.digits % 10 == 0) number.digits /= 10, number.exponent++;
    return number;
}

/* The upper 64 bits of power * factor / 2^64, the lowest of them set where anything was lost. */
static inline uint64_t scaled(const uint64_t *power, uint64_t factor) {
    const wide low = (wide)power[0] * factor, high = (wide)power[1] * factor + (uint64_t)(low >> 64);
    return (uint64_t)(high >> 64) | ((uint64_t)high > 1);
}

/* The shortest decimal within the interval of what reads as the number, by Raffaello Giulietti's method ("The
 * Schubfach way to render doubles", 2020): bounds and number times a power of ten, in which a digit is a unit.
 * bits: a finite number above 0. */
static inline decimal shortest(uint64_t bits, const uint64_t *powers) {
    const uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    const int field = (int)(bits >> 52);
    const uint64_t significand = field ? fraction | UINT64_C(1) << 52 : fraction;
    const int binary = field ? field - 1075 : -1074;
    const int closer = !fraction && field > 1; /* the number below is half as far as the one above */
    const int odd = (int)(significand & 1);
    const int ten_power = (int)(((int64_t)binary * 1262611 - (closer ? 524031 : 0)) >> 22);
    const int shift = binary + (int)(((int64_t)-ten_power * 1741647) >> 19) + 1;
    const uint64_t *power = powers + 2 * (-ten_power - LOWEST_POWER);
    const uint64_t lower = scaled(power, (4 * significand - 2 + (uint64_t)closer) << shift) + (uint64_t)odd;
    const uint64_t number = scaled(power, 4 * significand << shift);
    const uint64_t upper = scaled(power, (4 * significand + 2) << shift) - (uint64_t)odd;
    const uint64_t unit = number / 4, ten = unit / 10;
    if (unit >= 10) {
        const int below = lower <= 40 * ten, above = 40 * ten + 40 <= upper;
        if (below != above) return (decimal){ten + (uint64_t)above, ten_power + 1};
    }
    const int below = lower <= 4 * unit, above = 4 * unit + 4 <= upper;
    if (below != above) return (decimal){unit + (uint64_t)above, ten_power};
    const uint64_t middle = 4 * unit + 2;
    const int up = number > middle || (number == middle && (unit & 1));
    return (decimal){unit + (uint64_t)up, ten_power};
}

#endif
