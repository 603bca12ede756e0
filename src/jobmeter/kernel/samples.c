/* The columns of the samples of a frame, copied and looked at in one pass. */
#include <string.h>

#include "common.h"

/* The first and the last time, the lowest and the highest value, and whether all values are finite. */
struct Extent {
    int64_t first, last;
    double lowest, highest;
    int64_t finite;
};

/* At `at` begin `series` numbers of 32 bits, how many samples each has, then the times and the values of all samples.
 * Gives 1 where each series has one sample, 0 where they have other numbers of them, -1 where these do not add up to
 * `samples`: then nothing is copied. The extent of no samples is not written. */
EXPORTED int64_t jobmeter_samples(
    const char *data, int64_t at, int64_t series, int64_t samples, int64_t *time, double *value, struct Extent *extent) {
    uint64_t total = 0;
    int64_t single = series == samples;
    for (int64_t one = 0; one < series; one++) {
        uint32_t count;
        memcpy(&count, data + at + 4 * one, sizeof count);
        total += count;
        single &= count == 1;
    }
    if (total != (uint64_t)samples) return -1;
    if (samples == 0) return single;
    memcpy(time, data + at + 4 * series, 8 * (size_t)samples);
    memcpy(value, data + at + 4 * series + 8 * samples, 8 * (size_t)samples);
    struct Extent found = {time[0], time[0], value[0], value[0], 1};
    for (int64_t one = 0; one < samples; one++) {
        found.first = time[one] < found.first ? time[one] : found.first;
        found.last = time[one] > found.last ? time[one] : found.last;
        found.lowest = value[one] < found.lowest ? value[one] : found.lowest;
        found.highest = value[one] > found.highest ? value[one] : found.highest;
        found.finite &= value[one] - value[one] == 0;
    }
    *extent = found;
    return single;
}
