declare module '*.css' {
  /** The style sheet's text: the bundle carries it, and puts it on the page itself. */
  const text: string
  export default text
}
