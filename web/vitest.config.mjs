// Tests of functions that need no browser; tests/e2e opens the page in one.
import { defineConfig } from "vitest/config";

export default defineConfig({ test: { include: ["tests/**/*.test.ts"], environment: "node", env: { TZ: "Europe/Berlin" } } });
