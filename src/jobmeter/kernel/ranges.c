/* Windows of time in the samples of series, and sums of what they hold. */
#include "common.h"

/* The first of the ascending times [first, end) that is after a limit, end where none is. It is sought from a guess on,
   which is near where windows are alike. */
static inline int64_t first_after(const int64_t *time, int64_t first, int64_t end, int64_t guess, int64_t limit) {
    int64_t at = guess < first ? first : guess > end ? end : guess;
    while (at < end && time[at] <= limit) at++;
    while (at > first && time[at - 1] > limit) at--;
    return at;
}

/* low and high[series][column]: the first sample after until[column] - range, and the first one after until[column].
   Series i has the samples [starts[i], starts[i + 1]), in order of time. Gives -1 where those are not within count
   samples; until is best in ascending order. */
EXPORTED int64_t jobmeter_ranges_find(
    const int64_t *time, int64_t count, const int64_t *starts, int64_t series, const int64_t *until, int64_t columns,
    int64_t range, int64_t *low, int64_t *high) {
    for (int64_t one = 0; one < series; one++) {
        const int64_t first = starts[one], end = starts[one + 1];
        if (first < 0 || end < first || end > count) return -1;
        int64_t from = first, to = first, from_step = 0, to_step = 0;
        for (int64_t column = 0; column < columns; column++) {
            const int64_t begin = first_after(time, first, end, from + from_step, until[column] - range);
            from_step = begin - from;
            from = *low++ = begin;
            const int64_t stop = first_after(time, first, end, to + to_step, until[column]);
            to_step = stop - to;
            to = *high++ = stop;
        }
    }
    return 0;
}

/* The sum of value[low, high) of each window, with the longer mantissa; missing where the window is empty. Gives -1 where
   a window is not within count values. */
EXPORTED int64_t jobmeter_ranges_sum(
    const double *value, int64_t count, const int64_t *low, const int64_t *high, int64_t windows, double missing,
    double *sum) {
    for (int64_t one = 0; one < windows; one++) {
        const int64_t first = low[one], end = high[one];
        if (first >= end) {
            sum[one] = missing;
            continue;
        }
        if (first < 0 || end > count) return -1;
        long double total = 0;
        for (int64_t at = first; at < end; at++) total += value[at];
        sum[one] = (double)total;
    }
    return 0;
}
