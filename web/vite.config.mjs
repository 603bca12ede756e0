// Builds the page into the folder that the server serves: names with a digest of the content, each file also compressed.
import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig } from "vite";

const TEXT = /\.(html|js|css|svg)$/;

/** The browser loads the page's script beside the small one that comes first, not after it. */
function preloaded() {
  return {
    name: "preloaded",
    apply: "build",
    transformIndexHtml: {
      order: "post",
      handler: (_, { bundle }) =>
        Object.values(bundle ?? {})
          .filter((one) => one.type === "chunk" && one.isDynamicEntry)
          .map((one) => ({ tag: "link", attrs: { rel: "modulepreload", crossorigin: true, href: `/page/${one.fileName}` }, injectTo: "head" })),
    },
  };
}

function compressed() {
  let folder;
  return {
    name: "compressed",
    apply: "build",
    configResolved(config) {
      folder = config.build.outDir;
    },
    closeBundle() {
      for (const name of readdirSync(folder).filter((one) => TEXT.test(one))) {
        const path = join(folder, name);
        if (!statSync(path).isFile()) continue;
        const content = readFileSync(path);
        writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
        writeFileSync(
          `${path}.br`,
          brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }),
        );
      }
    },
  };
}

export default defineConfig({
  base: "/page/",
  publicDir: "public",
  build: {
    outDir: process.env.JOBMETER_PAGE_OUT ?? "../src/jobmeter/server/page",
    emptyOutDir: true,
    assetsDir: "",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    target: "es2022",
    reportCompressedSize: false,
  },
  plugins: [preloaded(), compressed()],
});
