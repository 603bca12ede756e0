/* A stand-in for Huawei's libdcmi.so that answers as dcmi_interface_api.h says.

   A test writes what it answers into the folder FAKE_DCMI: `N/NAME` has the number of chip N, `N/NAME.code` the code that
   the call returns instead. While `N/NAME.hangs` is there the call does not return. A call without a file is not
   supported. Chip N is chip N % 2 of card N / 2, and its logical number is 31 - N. Calls that overlap are counted. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID = -8001, GONE = -8008, NOT_SUPPORTED = -8255 };

static int inside;

static int path_of(char *path, int chip, const char *name, const char *end) {
    return snprintf(path, 512, "%s/%d/%s%s", getenv("FAKE_DCMI"), chip, name, end);
}
static int read_list(int chip, const char *name, const char *end, long long *values, int most) {
    char path[512];
    path_of(path, chip, name, end);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    int found = 0;
    while (found < most && fscanf(file, "%lld", &values[found]) == 1) found++;
    fclose(file);
    return found;
}
/* Stores the numbers of a call in `values`. Returns their count, or a negative error code. */
static int answer(int chip, const char *name, long long *values, int most) {
    char path[512];
    long long code;
    if (__atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST)) {
        snprintf(path, sizeof path, "%s/overlaps", getenv("FAKE_DCMI"));
        FILE *file = fopen(path, "a");
        fputs(".", file);
        fclose(file);
    }
    usleep(200);
    path_of(path, chip, name, ".hangs");
    if (!access(path, F_OK)) {
        __atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST); /* a hanging call no longer counts as running */
        while (!access(path, F_OK)) usleep(1000);
        __atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST);
    }
    int found = read_list(chip, "gone", "", values, 1) >= 0 ? GONE : read_list(chip, name, ".code", &code, 1) > 0 ? (int)code
              : read_list(chip, name, "", values, most);
    __atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST);
    return found == -1 ? NOT_SUPPORTED : found;
}
static int listed(int *chips, int most) {
    DIR *folder = opendir(getenv("FAKE_DCMI"));
    struct dirent *entry;
    int found = 0;
    while ((entry = readdir(folder)))
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && found < most) chips[found++] = atoi(entry->d_name);
    closedir(folder);
    return found;
}

#ifdef SECOND
#define NAME(first, second) second
#define CHIP int chip
#define INIT dcmiv2_init
#define CALL(first, second) dcmiv2_get_device_##second
#else
#define NAME(first, second) first
#define CHIP int card, int place
#define INIT dcmi_init
#define CALL(first, second) dcmi_get_device_##first
#endif
#ifdef SECOND
#define ENTER
#else
#define ENTER int chip = card * 2 + place;
#endif
#define ASK(name, most) \
    ENTER \
    long long values[most]; \
    memset(values, 0, sizeof values); \
    int found = answer(chip, name, values, most); \
    if (found < 0) return found

EXPORT int INIT(void) {
    long long code;
    return read_list(0, "../init", ".code", &code, 1) > 0 ? (int)code : SUCCESS;
}
#ifdef SECOND
EXPORT int dcmiv2_get_device_list(int *list, int *count, int most) { *count = listed(list, most); return SUCCESS; }
EXPORT int dcmiv2_get_chip_phy_id_by_dev_id(unsigned chip, unsigned *physical) { *physical = chip; return SUCCESS; }
#else
EXPORT int dcmi_get_card_list(int *count, int *list, int most) {
    int chips[64], found = listed(chips, 64);
    *count = 0;
    for (int at = 0; at < found; at++) {
        int is_new = 1;
        for (int one = 0; one < *count; one++) is_new &= list[one] != chips[at] / 2;
        if (is_new && *count < most) list[(*count)++] = chips[at] / 2;
    }
    return SUCCESS;
}
EXPORT int dcmi_get_device_id_in_card(int card, int *most, int *mcu, int *cpu) {
    int chips[64], found = listed(chips, 64);
    *most = 0;
    for (int at = 0; at < found; at++)
        if (chips[at] / 2 == card && chips[at] % 2 >= *most) *most = chips[at] % 2 + 1;
    *mcu = *most, *cpu = -1;
    return SUCCESS;
}
EXPORT int dcmi_get_device_logic_id(int *logical, int card, int place) {
    char path[512];
    path_of(path, card * 2 + place, "", "");
    if (access(path, F_OK)) return INVALID;
    *logical = 31 - (card * 2 + place);
    return SUCCESS;
}
EXPORT int dcmi_get_device_phyid_from_logicid(unsigned logical, unsigned *physical) { *physical = 31 - logical; return SUCCESS; }
#endif

#define NUMBER(name) \
    EXPORT int CALL(name, name)(CHIP, int *value) { ASK(#name, 1); *value = (int)values[0]; return SUCCESS; }
NUMBER(power_info)
NUMBER(temperature)
NUMBER(voltage)
NUMBER(health)
NUMBER(network_health)

/* Reads the number of a kind from lines of kind and number. */
static int of_kind(int chip, const char *name, int kind, unsigned *value) {
    long long values[64];
    int found = answer(chip, name, values, 64);
    for (int at = 0; at + 1 < found; at += 2)
        if (values[at] == kind) return *value = (unsigned)values[at + 1], SUCCESS;
    return found < 0 ? found : NOT_SUPPORTED;
}
EXPORT int CALL(utilization_rate, utilization_rate)(CHIP, int kind, unsigned *value) { ENTER return of_kind(chip, "utilization_rate", kind, value); }
EXPORT int CALL(frequency, frequency)(CHIP, int kind, unsigned *value) { ENTER return of_kind(chip, "frequency", kind, value); }

struct hbm { unsigned long long size; unsigned clock; unsigned long long used; int temperature; unsigned bandwidth; };
EXPORT int CALL(hbm_info, hbm_info)(CHIP, struct hbm *value) {
    ASK("hbm_info", 5);
    *value = (struct hbm){values[0], values[1], values[2], values[3], values[4]};
    return SUCCESS;
}
#ifndef SECOND
struct memory { unsigned long long size, available; unsigned clock; unsigned long pages[3]; unsigned utilization; unsigned char reserve[60]; };
EXPORT int dcmi_get_device_memory_info_v3(CHIP, struct memory *value) {
    ASK("memory_info", 2);
    value->size = values[0], value->available = values[1];
    return SUCCESS;
}
#endif
EXPORT int CALL(ecc_info, ecc_info)(CHIP, int kind, unsigned *value) {
    ASK("ecc_info", 9);
    if (kind != 2) return NOT_SUPPORTED;
    for (int at = 0; at < 9; at++) value[at] = values[at];
    return SUCCESS;
}
EXPORT int CALL(errorcode_v2, error_code_list)(CHIP, int *count, unsigned *list, unsigned most) {
    ASK("faults", 128);
    *count = found;
    for (int at = 0; at < found && at < (int)most; at++) list[at] = (unsigned)values[at];
    return SUCCESS;
}
struct process { int pid; unsigned long memory; };
EXPORT int CALL(resource_info, proc_mem_info)(CHIP, struct process *list, int *count) {
    ASK("processes", 64);
    *count = found / 2;
    for (int at = 0; at < *count; at++) list[at] = (struct process){values[2 * at], values[2 * at + 1]};
    return SUCCESS;
}
struct pcie { unsigned ids[4]; int domain; unsigned bus, device, function; unsigned char reserve[32]; };
EXPORT int CALL(pcie_info_v2, pcie_info)(CHIP, struct pcie *value) {
    ASK("pcie", 3);
    value->domain = values[0], value->bus = values[1], value->device = values[2];
    return SUCCESS;
}
struct chip_info { char kind[32], name[32], version[32]; unsigned cores; char npu_name[32]; };
EXPORT int CALL(chip_info_v2, chip_info)(CHIP, struct chip_info *value) {
    ASK("cores", 1);
    strcpy(value->name, "910B3");
    value->cores = values[0];
    return SUCCESS;
}
EXPORT int CALL(die_v2, die_id)(CHIP, int kind, unsigned *value) {
    ASK("die", 5);
    if (kind != 1) return NOT_SUPPORTED;
    for (int at = 0; at < 5; at++) value[at] = values[at];
    return SUCCESS;
}
