/* A table that gives numbers of series, which are digests, a number each: open addressing, with one writer.
 *
 * Another process may read it meanwhile. It may then miss a series, or find the number of another one: the caller
 * checks. The key of the hash is drawn anew for each table, so that nobody can choose series that meet. */
#include "common.h"
#include "marks.h"

/* Slots are a power of two, and lie behind as many that are not used (any more): a larger table goes behind. */
struct Slots {
    _Atomic uint64_t *series;
    _Atomic int32_t *number; /* plus one; 0 for a free slot */
    uint64_t key;
    int64_t count;
};

static inline int64_t home_of(const struct Slots *in, uint64_t series) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)(series ^ in->key) * (in->key | 1);
    return (int64_t)(((uint64_t)product ^ (uint64_t)(product >> 64)) & (uint64_t)(in->count - 1));
}

/* The slot of the series, or the free one where it belongs; -1 where there is neither. */
static int64_t slot_of(const struct Slots *in, uint64_t series) {
    int64_t at = home_of(in, series);
    for (int64_t tried = 0; tried < in->count; tried++, at = (at + 1) & (in->count - 1)) {
        if (atomic_load_explicit(&in->number[in->count + at], memory_order_acquire) == 0) return in->count + at;
        if (LOAD(in->series[in->count + at]) == series) return in->count + at;
    }
    return -1;
}

static void fill(const struct Slots *in, int64_t slot, uint64_t series, int32_t number) {
    STORE(in->series[slot], series);
    atomic_store_explicit(&in->number[slot], number, memory_order_release);
}

/* numbers: -1 for an unknown series. */
EXPORTED void jobmeter_series_find(const struct Slots *in, const uint64_t *series, int64_t count, int64_t *numbers) {
    for (int64_t at = 0; at < count; at++) {
        int64_t slot = slot_of(in, series[at]);
        numbers[at] = slot < 0 ? -1 : (int64_t)LOAD(in->number[slot]) - 1;
    }
}

/* There must be more slots than series. Gives how many series are new. */
EXPORTED int64_t jobmeter_series_put(
    const struct Slots *in, const uint64_t *series, const int64_t *numbers, int64_t count) {
    int64_t added = 0;
    for (int64_t at = 0; at < count; at++) {
        int64_t slot = slot_of(in, series[at]);
        added += LOAD(in->number[slot]) == 0;
        fill(in, slot, series[at], (int32_t)numbers[at] + 1);
    }
    return added;
}

/* Gives how many were there. The series behind close the gap, so that each is found from its home on. */
EXPORTED int64_t jobmeter_series_remove(const struct Slots *in, const uint64_t *series, int64_t count) {
    int64_t mask = in->count - 1, removed = 0;
    for (int64_t at = 0; at < count; at++) {
        int64_t slot = slot_of(in, series[at]);
        if (slot < 0 || LOAD(in->number[slot]) == 0) continue;
        int64_t gap = slot - in->count;
        for (int64_t next = (gap + 1) & mask; LOAD(in->number[in->count + next]); next = (next + 1) & mask) {
            uint64_t moved = LOAD(in->series[in->count + next]);
            if (((next - home_of(in, moved)) & mask) < ((next - gap) & mask)) continue;
            fill(in, in->count + gap, moved, LOAD(in->number[in->count + next]));
            gap = next;
        }
        STORE(in->number[in->count + gap], 0);
        removed++;
    }
    return removed;
}

/* Puts the series of a table into a larger one, which is empty. */
EXPORTED void jobmeter_series_move(const struct Slots *from, const struct Slots *to) {
    for (int64_t slot = from->count; slot < 2 * from->count; slot++) {
        if (LOAD(from->number[slot]) == 0) continue;
        uint64_t series = LOAD(from->series[slot]);
        fill(to, slot_of(to, series), series, LOAD(from->number[slot]));
    }
}
