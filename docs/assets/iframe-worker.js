// A stand-in for Worker in pages that are opened as files, where browsers start no worker. It runs
// the script in a hidden frame and passes messages both ways. Only the search of the site uses it.
(() => {
  if (location.protocol !== "file:") return;

  const runtime = `
    postMessage = message => parent.postMessage(message, "*");
    importScripts = (...urls) => urls.reduce((loaded, url) => loaded.then(() => new Promise(done => {
      const script = document.createElement("script");
      script.src = url;
      script.onload = done;
      document.body.appendChild(script);
    })), Promise.resolve());`;

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      this.receive = event => {
        if (event.source !== inside) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      };
      window.addEventListener("message", this.receive);
      inside.document.open();
      inside.document.write(
        `<html><body><script>${runtime}<\/script><script src="${url}"><\/script></body></html>`
      );
      inside.document.close();
      // Not before: opening a document removes the handlers of its window.
      this.loaded = new Promise(done => { inside.onload = done; });
    }

    postMessage(data) {
      this.loaded.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      });
    }

    terminate() {
      window.removeEventListener("message", this.receive);
      this.frame.remove();
    }
  };
})();
