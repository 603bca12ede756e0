/* A table that gives numbers of keys, a number each: open addressing, with one writer.
 *
 * Another process may read it meanwhile. It may then miss a key, or find the number of another one: the caller checks.
 * The key of the hash is drawn anew for each table, so that nobody can choose keys that meet. */
#ifndef JOBMETER_KERNEL_NUMBER_TABLE_H
#define JOBMETER_KERNEL_NUMBER_TABLE_H

#include "common.h"
#include "marks.h"

/* Slots are a power of two, and lie behind as many that are not used (any more): a larger table goes behind. */
struct Slots {
    _Atomic uint64_t *key;
    _Atomic int32_t *number; /* plus one; 0 for a free slot */
    uint64_t secret;
    int64_t count;
};

static inline uint64_t fold(uint64_t left, uint64_t right) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)left * right;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline int64_t home_of(const struct Slots *in, uint64_t key) {
    return (int64_t)(fold(key ^ in->secret, in->secret | 1) & (uint64_t)(in->count - 1));
}

/* The slot of the key, or the free one where it belongs; -1 where there is neither. */
static inline int64_t slot_of(const struct Slots *in, uint64_t key) {
    int64_t at = home_of(in, key);
    for (int64_t tried = 0; tried < in->count; tried++, at = (at + 1) & (in->count - 1)) {
        if (atomic_load_explicit(&in->number[in->count + at], memory_order_acquire) == 0) return in->count + at;
        if (LOAD(in->key[in->count + at]) == key) return in->count + at;
    }
    return -1;
}

/* -1 for an unknown key. */
static inline int64_t number_of(const struct Slots *in, uint64_t key) {
    int64_t slot = slot_of(in, key);
    return slot < 0 ? -1 : (int64_t)LOAD(in->number[slot]) - 1;
}

static inline void fill(const struct Slots *in, int64_t slot, uint64_t key, int64_t number) {
    STORE(in->key[slot], key);
    atomic_store_explicit(&in->number[slot], (int32_t)number + 1, memory_order_release);
}

#endif
