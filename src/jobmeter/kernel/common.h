/* What every function of the kernel shares. */
#ifndef JOBMETER_KERNEL_COMMON_H
#define JOBMETER_KERNEL_COMMON_H

#include <stdint.h>

#ifndef JOBMETER_ABI
#error "the build gives the number of these sources (abi.py)"
#endif
#define EXPORTED __attribute__((visibility("default")))

/* Rounds towards minus infinity, as NumPy's // does. */
static inline int64_t floor_divide(int64_t number, int64_t divisor) {
    int64_t quotient = number / divisor;
    return quotient - ((number % divisor != 0) && ((number < 0) != (divisor < 0)));
}

#endif
