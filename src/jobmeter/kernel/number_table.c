#include "number_table.h"

/* numbers: -1 for an unknown key. */
EXPORTED void jobmeter_numbers_find(const struct Slots *in, const uint64_t *keys, int64_t count, int64_t *numbers) {
    for (int64_t at = 0; at < count; at++) numbers[at] = number_of(in, keys[at]);
}

/* There must be more slots than keys. Gives how many keys are new. */
EXPORTED int64_t jobmeter_numbers_put(
    const struct Slots *in, const uint64_t *keys, const int64_t *numbers, int64_t count) {
    int64_t added = 0;
    for (int64_t at = 0; at < count; at++) {
        int64_t slot = slot_of(in, keys[at]);
        added += LOAD(in->number[slot]) == 0;
        fill(in, slot, keys[at], numbers[at]);
    }
    return added;
}

/* Gives how many were there. The keys behind close the gap, so that each is found from its home on. */
EXPORTED int64_t jobmeter_numbers_remove(const struct Slots *in, const uint64_t *keys, int64_t count) {
    int64_t mask = in->count - 1, removed = 0;
    for (int64_t at = 0; at < count; at++) {
        int64_t slot = slot_of(in, keys[at]);
        if (slot < 0 || LOAD(in->number[slot]) == 0) continue;
        int64_t gap = slot - in->count;
        for (int64_t next = (gap + 1) & mask; LOAD(in->number[in->count + next]); next = (next + 1) & mask) {
            uint64_t moved = LOAD(in->key[in->count + next]);
            if (((next - home_of(in, moved)) & mask) < ((next - gap) & mask)) continue;
            fill(in, in->count + gap, moved, (int64_t)LOAD(in->number[in->count + next]) - 1);
            gap = next;
        }
        STORE(in->number[in->count + gap], 0);
        removed++;
    }
    return removed;
}

/* Puts the keys of a table into a larger one, which is empty. */
EXPORTED void jobmeter_numbers_move(const struct Slots *from, const struct Slots *to) {
    for (int64_t slot = from->count; slot < 2 * from->count; slot++) {
        if (LOAD(from->number[slot]) == 0) continue;
        uint64_t key = LOAD(from->key[slot]);
        fill(to, slot_of(to, key), key, (int64_t)LOAD(from->number[slot]) - 1);
    }
}
